// SPDX-License-Identifier: MIT
/*
 * A test that starts itself under `vpmu kvm`: see under_vpmu.h.
 */
#include "unit/under_vpmu.h"

#include <fcntl.h>
#include <linux/kvm.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/types.h"

int open_kvm(void)
{
	int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

int api(int fd)
{
	return ioctl(fd, KVM_GET_API_VERSION, 0);
}

int run_under_vpmu(const char *model, void (*prepare)(void))
{
	const char *argv[8] = { "vpmu", "kvm" };
	char self[512] = "", vpmu[1024];
	int status = -1;
	u32 n = 2;
	pid_t child;

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return -1;
	snprintf(vpmu, sizeof(vpmu), "%.*s../../vpmu", (int)(strrchr(self, '/') + 1 - self), self);
	if (model) {
		argv[n++] = "--cpu";
		argv[n++] = model;
	}
	argv[n++] = self;
	argv[n++] = "inside";
	argv[n++] = model;
	fprintf(stderr, "--- %s\n", model ? model : "the host's model");
	child = fork();
	if (!child) {
		if (prepare)
			prepare();
		execv(vpmu, (char *const *)argv);
		perror(vpmu);
		_exit(127);
	}
	waitpid(child, &status, 0);
	return status;
}
