// SPDX-License-Identifier: MIT
/*
 * What a command finds around it: the host's time, name and limits, perf for everybody, and, if
 * asked for, QEMU's user network.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/random.h>
#include <net/if.h>
#include <net/route.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "exec/guest/guest.h"

static const struct setting {
	const char *file, *value;
} settings[] = {
	/* Everybody may count and sample everything: it is a machine for that. */
	{ "/proc/sys/kernel/perf_event_paranoid", "-1" },
	/* Time that the host takes away in the middle of a sample would look like a dear one, and
	 * Linux allow fewer and fewer: down to one a tick, which then is all that they find. */
	{ "/proc/sys/kernel/perf_cpu_time_max_percent", "0" },
	{ "/proc/sys/kernel/kptr_restrict", "0" },
	{ "/proc/sys/kernel/nmi_watchdog", "0" },
	{ "/proc/sys/kernel/yama/ptrace_scope", "0" },
	{ "/proc/sys/net/ipv4/ping_group_range", "0 2147483647" },
};

static void write_file(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	/* A kernel without this setting is as good. */
	if (fd >= 0 && write(fd, text, strlen(text)) >= 0)
		close(fd);
}

/* A guest that was resumed from a saved state knows the random numbers of all others. */
static void seed(const u8 bytes[SEED_SIZE])
{
	struct { /* struct rand_pool_info with its bytes */
		int entropy_count, buf_size;
		u8 bytes[SEED_SIZE];
	} pool = { 8 * SEED_SIZE, SEED_SIZE, { 0 } };
	int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);

	memcpy(pool.bytes, bytes, SEED_SIZE);
	ioctl(fd, RNDADDENTROPY, &pool);
	ioctl(fd, RNDRESEEDCRNG);
	close(fd);
}

static void set_limit(int which, u64 soft, u64 hard)
{
	struct rlimit limit = { soft, hard };

	setrlimit(which, &limit);
}

static void set_address(int fd, struct ifreq *device, unsigned long request, const char *address)
{
	struct sockaddr_in to = { .sin_family = AF_INET };

	inet_pton(AF_INET, address, &to.sin_addr);
	memcpy(&device->ifr_addr, &to, sizeof(to));
	ioctl(fd, request, device);
}

static void bring_up(int fd, const char *name)
{
	struct ifreq device = { 0 };

	strcpy(device.ifr_name, name);
	ioctl(fd, SIOCGIFFLAGS, &device);
	device.ifr_flags |= IFF_UP;
	ioctl(fd, SIOCSIFFLAGS, &device);
}

/* The addresses that QEMU's user network always has. */
static void configure_network(int fd)
{
	struct ifreq device = { .ifr_name = "eth0" };
	struct rtentry route = { .rt_flags = RTF_UP | RTF_GATEWAY };
	struct sockaddr_in any = { .sin_family = AF_INET }, gateway = any;

	set_address(fd, &device, SIOCSIFADDR, "10.0.2.15");
	set_address(fd, &device, SIOCSIFNETMASK, "255.255.255.0");
	bring_up(fd, "eth0");
	inet_pton(AF_INET, "10.0.2.2", &gateway.sin_addr);
	memcpy(&route.rt_dst, &any, sizeof(any));
	memcpy(&route.rt_genmask, &any, sizeof(any));
	memcpy(&route.rt_gateway, &gateway, sizeof(gateway));
	ioctl(fd, SIOCADDRT, &route);
}

#define RESOLVER     "/etc/resolv.conf"
#define OWN_RESOLVER "/dev/resolv.conf" /* in the guest's memory */

static bool is_in_memory(const char *folder)
{
	struct statfs fs;

	return !statfs(folder, &fs) && fs.f_type == OVERLAYFS_SUPER_MAGIC;
}

/*
 * The host's file may be in a folder that is shared for writing, or be a link to one there: a mount
 * over it changes neither. Where there is no file to mount on, one is made, but only in memory.
 */
static void name_the_resolver(void)
{
	static const char text[] = "nameserver 10.0.2.3\n";
	struct stat st;

	write_file(OWN_RESOLVER, text);
	if (!stat(RESOLVER, &st) && S_ISREG(st.st_mode) &&
	    !mount(OWN_RESOLVER, RESOLVER, NULL, MS_BIND, NULL))
		return;
	unlink(OWN_RESOLVER);
	if (!is_in_memory("/etc")) {
		fputs("vpmu: the guest does not make " RESOLVER " in the host's folder: names are "
		      "not resolved\n",
		      stderr);
		return;
	}
	unlink(RESOLVER);
	write_file(RESOLVER, text);
}

void settings_prepare(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	for (u32 i = 0; i < ARRAY_SIZE(settings); i++)
		write_file(settings[i].file, settings[i].value);
	bring_up(fd, "lo");
	close(fd);
}

void settings_apply(const struct order *order)
{
	struct timespec now = { order->start.seconds, order->start.nanoseconds };
	int fd = order->start.network ? socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;

	clock_settime(CLOCK_REALTIME, &now);
	seed(order->start.seed);
	sethostname(order->host, strlen(order->host));
	set_limit(RLIMIT_STACK, order->start.stack_limit, RLIM_INFINITY);
	set_limit(RLIMIT_NOFILE, 1024, 1 << 20);
	set_limit(RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
	if (fd < 0)
		return;
	configure_network(fd);
	close(fd);
	name_the_resolver();
}
