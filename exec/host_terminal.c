// SPDX-License-Identifier: MIT
/*
 * The terminal that vpmu was started on. It is raw while a command runs that reads its keys, which
 * are the guest terminal's to interpret. Linux stops a process of a background job that sets modes
 * or reads: such a vpmu does neither.
 */
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "exec/exec.h"

/* Where it is not the terminal of our session (-1), nobody is in the background. */
bool terminal_is_foreground(void)
{
	pid_t group = tcgetpgrp(0);

	return group < 0 || group == getpgrp();
}

void terminal_look(struct host_terminal *terminal)
{
	*terminal = (struct host_terminal){ 0 };
	for (int i = 0; i < 3; i++)
		if (isatty(i))
			terminal->files |= 1u << i;
	terminal->is_ours =
		terminal->files & 1 && !tcgetattr(0, &terminal->before) && terminal_is_foreground();
}

int terminal_fd(const struct host_terminal *terminal)
{
	static const int preferred[] = { 1, 2, 0 }; /* for writing */

	for (u32 i = 0; i < ARRAY_SIZE(preferred); i++)
		if (terminal->files & 1u << preferred[i])
			return preferred[i];
	return -1;
}

struct size terminal_size(const struct host_terminal *terminal)
{
	struct winsize size = { 24, 80, 0, 0 };

	ioctl(terminal_fd(terminal), TIOCGWINSZ, &size);
	return (struct size){ size.ws_row, size.ws_col };
}

void terminal_make_raw(struct host_terminal *terminal)
{
	struct termios raw = terminal->before;

	terminal->is_ours = terminal->is_ours && terminal_is_foreground();
	if (!terminal->is_ours || terminal->is_raw)
		return;
	cfmakeraw(&raw);
	terminal->is_raw = !tcsetattr(0, TCSADRAIN, &raw);
}

void terminal_restore(struct host_terminal *terminal)
{
	if (terminal->is_raw && terminal_is_foreground())
		tcsetattr(0, TCSADRAIN, &terminal->before);
	terminal->is_raw = false;
}
