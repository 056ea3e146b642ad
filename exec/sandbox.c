// SPDX-License-Identifier: MIT
/*
 * No new privileges, capabilities and Landlock (Documentation/userspace-api/landlock.rst in Linux).
 * sandbox_calls.c has the system calls.
 */
#include "exec/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exec/sandbox_calls.h"

/* --- Landlock --- */

#define READS (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define CHANGES                                                                                  \
	(LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |                         \
	 LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |                          \
	 LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |                            \
	 LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REFER | \
	 LANDLOCK_ACCESS_FS_TRUNCATE)

/* What each version of the ABI can forbid. Version 1 is of no use: under it no file can be moved
 * from one folder to another. */
#define FIRST_ABI 2

static const struct ability {
	int abi;
	u64 files, network, scopes;
} abilities[] = {
	{ 2, LANDLOCK_ACCESS_FS_REFER | (LANDLOCK_ACCESS_FS_REFER - 1), 0, 0 },
	{ 3, LANDLOCK_ACCESS_FS_TRUNCATE, 0, 0 },
	{ 4, 0, LANDLOCK_ACCESS_NET_BIND_TCP | LANDLOCK_ACCESS_NET_CONNECT_TCP, 0 },
	{ 5, LANDLOCK_ACCESS_FS_IOCTL_DEV, 0, 0 },
	{ 6, 0, 0, LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL },
};

static int landlock_abi(void)
{
	return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

int sandbox_landlock(void)
{
	int abi = landlock_abi();

	return abi < FIRST_ABI ? 0 : abi;
}

/* Everything that this kernel can forbid. */
static struct landlock_ruleset_attr all_rights(int abi)
{
	struct landlock_ruleset_attr all = { 0 };

	for (u32 i = 0; i < ARRAY_SIZE(abilities) && abilities[i].abi <= abi; i++) {
		all.handled_access_fs |= abilities[i].files;
		all.handled_access_net |= abilities[i].network;
		all.scoped |= abilities[i].scopes;
	}
	return all;
}

/* An older kernel knows a shorter structure, and takes a longer one if the rest is zero. */
static int make_ruleset(const struct landlock_ruleset_attr *handled)
{
	return syscall(SYS_landlock_create_ruleset, handled, sizeof(*handled), 0);
}

/* Allows rights on a file or below a folder; "" is the root. */
static int allow(int ruleset, const char *path, u64 rights)
{
	struct landlock_path_beneath_attr beneath = { .allowed_access = rights };
	int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), error = 0;

	if (root < 0)
		return errno;
	beneath.parent_fd = openat(root, *path ? path : ".", O_PATH | O_CLOEXEC);
	if (beneath.parent_fd < 0 ||
	    syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0))
		error = errno;
	if (beneath.parent_fd >= 0)
		close(beneath.parent_fd);
	close(root);
	return error;
}

static int restrict_files(const char *const *writable, u32 count)
{
	struct landlock_ruleset_attr all = all_rights(sandbox_landlock());
	int ruleset = make_ruleset(&all), error;

	if (ruleset < 0)
		return errno;
	error = allow(ruleset, "", READS);
	for (u32 i = 0; i < count && !error; i++)
		error = allow(ruleset, writable[i], CHANGES & all.handled_access_fs);
	if (!error && syscall(SYS_landlock_restrict_self, ruleset, 0))
		error = errno;
	close(ruleset);
	return error;
}

/* --- capabilities --- */

#define CAPABILITY(name) (1u << CAP_##name)

/* Root serves the files of all users; it hands what guests make over to them. CAP_FSETID is not
 * among these, so the kernel clears the set-id bits of a program that a guest writes to. */
static int drop_capabilities(bool writes)
{
	const u32 kept =
		CAPABILITY(DAC_READ_SEARCH) |
		(writes ? CAPABILITY(DAC_OVERRIDE) | CAPABILITY(CHOWN) | CAPABILITY(FOWNER) : 0);
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct set[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (syscall(SYS_capget, &header, set))
		return errno;
	set[0].effective &= kept;
	set[0].permitted &= kept;
	set[1].effective = set[1].permitted = set[0].inheritable = set[1].inheritable = 0;
	return syscall(SYS_capset, &header, set) ? errno : 0;
}

/* --- together --- */

int sandbox_serve_files(const char *const *writable, u32 count)
{
	int error = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? errno : drop_capabilities(count);

	if (!error && sandbox_landlock())
		error = restrict_files(writable, count);
	return error ? error : sandbox_restrict_calls(count);
}

/* Network and scopes are left alone: QEMU may have a network. execve() gives root nothing back:
 * there are no new privileges (cap_bprm_creds_from_file() in Linux). */
int sandbox_read_only(void)
{
	struct landlock_ruleset_attr handled = { 0 };
	int abi = sandbox_landlock(), ruleset;
	int error = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? errno : drop_capabilities(false);

	if (error || !abi)
		return error;
	handled.handled_access_fs = all_rights(abi).handled_access_fs;
	ruleset = make_ruleset(&handled);
	if (ruleset < 0)
		return errno;
	error = allow(ruleset, "", READS | LANDLOCK_ACCESS_FS_EXECUTE);
	if (!error)
		error = allow(ruleset, "dev/null", LANDLOCK_ACCESS_FS_WRITE_FILE);
	if (!error && syscall(SYS_landlock_restrict_self, ruleset, 0))
		error = errno;
	close(ruleset);
	return error;
}
