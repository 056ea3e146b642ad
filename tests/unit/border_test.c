// SPDX-License-Identifier: MIT
/*
 * The border with libc. Without arguments the program starts itself under `vpmu kvm`, once per CPU
 * model; inside, it does to /dev/kvm, to the module parameters, to signals and to CPUID what other
 * programs do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <cpuid.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/types.h"
#include "unit/under_vpmu.h"
#include "x86/models.h"

#define PARAMETERS "/sys/module/kvm/parameters/"

int __open_2(const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);

static void every_way_to_open_leads_to_kvm(void **state)
{
	int fds[] = {
		open("/dev/kvm", O_RDWR),
		open64("/dev/kvm", O_RDONLY | O_CLOEXEC),
		openat(AT_FDCWD, "/dev/kvm", O_RDWR),
		openat64(7777, "/dev/kvm", O_RDWR),
		__open_2("/dev/kvm", O_RDWR),
		__openat64_2(AT_FDCWD, "/dev/kvm", O_RDWR),
	};

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(fds); i++) {
		assert_int_equal(api(fds[i]), 12);
		assert_int_equal(!!(fcntl(fds[i], F_GETFD) & FD_CLOEXEC), i == 1);
		assert_int_equal(close(fds[i]), 0);
		assert_int_equal(api(fds[i]), -1);
		assert_int_equal(errno, EBADF);
	}
}

static void other_files_are_not_touched(void **state)
{
	int fd = open("/dev/null", O_RDWR), pipes[2];
	char c = 'x';

	(void)state;
	assert_int_equal(api(fd), -1);
	assert_int_equal(errno, ENOTTY);
	assert_int_equal(close(fd), 0);
	assert_int_equal(close(fd), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(write(pipes[1], &c, 1), 1);
	assert_int_equal(read(pipes[0], &c, 1), 1);
	close(pipes[0]);
	close(pipes[1]);
}

static void a_request_is_32_bits_wide(void **state)
{
	int fd = open_kvm();

	(void)state;
	assert_int_equal(ioctl(fd, 0xffffffff00000000ul | KVM_GET_API_VERSION, 0), 12);
	assert_int_equal(ioctl(fd, FIOCLEX), 0);
	close(fd);
}

static void copies_of_a_descriptor_are_the_same_file(void **state)
{
	int kvm = open_kvm(), copies[5];

	(void)state;
	copies[0] = dup(kvm);
	copies[1] = dup2(kvm, 300);
	copies[2] = dup3(kvm, 301, O_CLOEXEC);
	copies[3] = fcntl(kvm, F_DUPFD, 302);
	copies[4] = fcntl(kvm, F_DUPFD_CLOEXEC, 302);
	assert_int_equal(dup2(kvm, kvm), kvm);
	close(kvm);
	for (u32 i = 0; i < ARRAY_SIZE(copies); i++) {
		assert_int_equal(api(copies[i]), 12);
		close(copies[i]);
		assert_int_equal(api(copies[i]), -1);
	}
	assert_int_equal(dup(copies[0]), -1);
	assert_int_equal(errno, EBADF);
}

static void a_copy_over_a_descriptor_of_ours_replaces_it(void **state)
{
	int kvm = open_kvm(), null = open("/dev/null", O_RDONLY);

	(void)state;
	assert_int_equal(dup2(null, kvm), kvm);
	assert_int_equal(api(kvm), -1);
	assert_int_equal(errno, ENOTTY);
	close(kvm);
	close(null);
}

static void ranges_are_closed(void **state)
{
	int kvm = open_kvm(), high = fcntl(kvm, F_DUPFD, 500);

	(void)state;
	assert_int_equal(close_range(high, high + 10, 0), 0);
	assert_int_equal(api(high), -1);
	assert_int_equal(api(kvm), 12);
	high = fcntl(kvm, F_DUPFD, 500);
	closefrom(400);
	assert_int_equal(api(high), -1);
	assert_int_equal(api(kvm), 12);
	close(kvm);
}

static void a_child_has_kvm_but_not_the_parents_vms(void **state)
{
	int kvm = open_kvm(), vm = ioctl(kvm, KVM_CREATE_VM, 0), status;
	pid_t child = fork();

	(void)state;
	assert_true(vm >= 0);
	if (!child) {
		int own = ioctl(kvm, KVM_CREATE_VM, 0);
		bool ok = api(kvm) == 12 && ioctl(vm, KVM_CHECK_EXTENSION, KVM_CAP_IRQCHIP) == -1 &&
			  errno == EIO;

		ok = ok && own >= 0 && ioctl(own, KVM_CHECK_EXTENSION, KVM_CAP_USER_MEMORY) == 1;
		ok = ok && !close(vm) && !close(own) && !close(kvm);
		_exit(!ok);
	}
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	assert_int_equal(ioctl(vm, KVM_CHECK_EXTENSION, KVM_CAP_USER_MEMORY), 1);
	close(vm);
	close(kvm);
}

static void parameters_can_be_read(void **state)
{
	char text[8] = "";
	struct stat st;
	int fd = open(PARAMETERS "force_emulation_prefix", O_RDONLY);
	FILE *f = fopen(PARAMETERS "enable_pmu", "r");

	(void)state;
	assert_int_equal(read(fd, text, sizeof(text)), 2);
	assert_memory_equal(text, "0\n", 2);
	close(fd);
	assert_non_null(f);
	assert_non_null(fgets(text, sizeof(text), f));
	assert_string_equal(text, "Y\n");
	fclose(f);
	assert_int_equal(stat(PARAMETERS "tdp_mmu", &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(access(PARAMETERS "tdp_mmu", R_OK), 0);
	assert_int_equal(open(PARAMETERS "tdp_mmu", O_RDWR), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(open(PARAMETERS "no_such_thing", O_RDONLY), -1);
	assert_int_equal(errno, ENOENT);
}

/* Whether the host has a KVM of its own or not. */
static void the_modules_folders_cannot_be_listed(void **state)
{
	static const char *const folders[] = { "/sys/module/kvm", PARAMETERS };
	struct stat st;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(folders); i++) {
		assert_int_equal(stat(folders[i], &st), 0);
		assert_true(S_ISDIR(st.st_mode));
		assert_int_equal(access(folders[i], X_OK), 0);
		assert_int_equal(access(folders[i], R_OK), -1);
		assert_int_equal(errno, EACCES);
		assert_int_equal(open(folders[i], O_RDONLY | O_DIRECTORY), -1);
		assert_int_equal(errno, EACCES);
	}
}

static const struct model *asked_for; /* NULL: the host's */

static void the_vendors_module_is_that_of_the_model(void **state)
{
	bool intel = !access("/sys/module/kvm_intel/parameters/ept", R_OK);
	bool amd = !access("/sys/module/kvm_amd/parameters/npt", R_OK);

	(void)state;
	assert_int_not_equal(intel, amd);
	if (asked_for)
		assert_int_equal(amd, asked_for->is_amd);
}

static void dev_kvm_looks_like_a_device(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(stat("/dev/kvm", &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(access("/dev/kvm", R_OK | W_OK), 0);
	assert_int_equal(faccessat(AT_FDCWD, "/dev/kvm", R_OK, 0), 0);
}

static void cpuid_shows_the_model(void **state)
{
	const struct model *model = asked_for;
	u32 eax, ebx, ecx, edx;

	(void)state;
	if (!model)
		return;
	__cpuid(0, eax, ebx, ecx, edx);
	assert_int_equal(ebx, model->is_amd ? signature_AMD_ebx : signature_INTEL_ebx);
	__cpuid(1, eax, ebx, ecx, edx);
	assert_int_equal(model_family_of(eax), model->family);
	assert_int_equal(model_model_of(eax), model->model);
	(void)ecx, (void)edx;
}

/* Signals. */

static volatile sig_atomic_t seen;
static volatile int *volatile nowhere = (volatile int *)16;
static sigjmp_buf back;

enum { RIGHT_ADDRESS = 1, WRONG_ADDRESS };

static void note(int sig)
{
	seen = sig;
}

static void jump_back(int sig, siginfo_t *info, void *ucontext)
{
	(void)ucontext;
	seen = sig;
	siglongjmp(back, info->si_addr == nowhere ? RIGHT_ADDRESS : WRONG_ADDRESS);
}

static void handlers_are_the_programs_own(void **state)
{
	struct sigaction act = { .sa_handler = note, .sa_flags = SA_RESTART }, old;
	sighandler_t before;

	(void)state;
	close(open_kvm());
	sigaddset(&act.sa_mask, SIGUSR2);
	assert_int_equal(sigaction(SIGUSR1, &act, NULL), 0);
	assert_int_equal(sigaction(SIGUSR1, NULL, &old), 0);
	assert_ptr_equal(old.sa_handler, note);
	assert_int_equal(old.sa_flags & ~0x04000000, SA_RESTART);
	assert_true(sigismember(&old.sa_mask, SIGUSR2));
	raise(SIGUSR1);
	assert_int_equal(seen, SIGUSR1);
	assert_ptr_equal(signal(SIGUSR1, SIG_IGN), note);
	assert_ptr_equal(signal(SIGUSR1, SIG_DFL), SIG_IGN);
	before = signal(SIGSEGV, note); /* cmocka's */
	assert_ptr_equal(signal(SIGSEGV, before), note);
	assert_int_equal(sigaction(SIGKILL, &act, NULL), -1);
	assert_int_equal(errno, EINVAL);
	assert_ptr_equal(signal(1000, note), SIG_ERR);
}

static void the_programs_own_faults_reach_its_handler(void **state)
{
	struct sigaction act = { .sa_sigaction = jump_back, .sa_flags = SA_SIGINFO }, old;

	(void)state;
	close(open_kvm());
	assert_int_equal(sigaction(SIGSEGV, &act, &old), 0);
	for (volatile u32 i = 0; i < 3; i++) {
		int came = sigsetjmp(back, 1);

		if (!came) {
			seen = 0;
			*nowhere = 1;
			fail();
		}
		assert_int_equal(came, RIGHT_ADDRESS);
		assert_int_equal(seen, SIGSEGV);
	}
	assert_int_equal(sigaction(SIGSEGV, &old, &act), 0);
	assert_ptr_equal(act.sa_sigaction, jump_back);
}

static void a_one_shot_handler_runs_once(void **state)
{
	static const int signals[] = { SIGUSR1, SIGTRAP };
	struct sigaction act = { .sa_handler = note, .sa_flags = SA_RESETHAND }, old;

	(void)state;
	close(open_kvm());
	for (u32 i = 0; i < ARRAY_SIZE(signals); i++) {
		sigaction(signals[i], &act, NULL);
		raise(signals[i]);
		assert_int_equal(seen, signals[i]);
		sigaction(signals[i], NULL, &old);
		assert_ptr_equal(old.sa_handler, SIG_DFL);
	}
}

/* Without a core in the folder of whoever runs the tests. */
static void fault(int sig)
{
	prctl(PR_SET_DUMPABLE, 0);
	signal(sig, SIG_DFL);
	if (sig == SIGSEGV)
		*nowhere = 1;
	if (sig == SIGILL)
		__asm__ volatile("ud2");
	if (sig == SIGTRAP)
		__asm__ volatile("int3");
	if (sig == SIGFPE)
		__asm__ volatile("div %0" : : "r"(0) : "rax", "rdx");
	if (sig == SIGBUS)
		raise(sig);
	_exit(0);
}

static void a_process_without_handlers_dies_of_the_right_signal(void **state)
{
	static const int signals[] = { SIGSEGV, SIGILL, SIGTRAP, SIGFPE, SIGBUS };
	int status;

	(void)state;
	close(open_kvm());
	for (u32 i = 0; i < ARRAY_SIZE(signals); i++) {
		pid_t child = fork();

		if (!child)
			fault(signals[i]);
		waitpid(child, &status, 0);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), signals[i]);
	}
}

#define SPINS 0x2000 /* a byte of the guest's memory: it has got as far as that */
#define SPIN  0x3008

/* A vCPU that spins: KVM_RUN ends only by a signal. */
static int make_spinner(int kvm, u8 **ram)
{
	int vm = ioctl(kvm, KVM_CREATE_VM, 0), vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	struct kvm_userspace_memory_region region = { .memory_size = 0x4000 };
	struct kvm_sregs sregs;
	struct kvm_regs regs = { .rip = 0x3000, .rflags = 2, .rsp = 0x3ff0 };
	static const u8 code[] = {
		0xc6, 0x04, 0x25, 0x00, 0x20, 0x00, 0x00, 0x01, /* movb $1, SPINS */
		0xeb, 0xfe,					/* SPIN: jmp . */
	};
	u64 *tables;

	*ram = mmap(NULL, 0x4000, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	tables = (u64 *)*ram; /* one 1 GiB page that maps everything to itself */
	tables[0] = 0x1000 | 3;
	tables[0x1000 / 8] = 0x83;
	memcpy(*ram + 0x3000, code, sizeof(code));
	region.userspace_addr = (u64)*ram;
	assert_int_equal(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region), 0);
	assert_int_equal(ioctl(vcpu, KVM_GET_SREGS, &sregs), 0);
	sregs.cr0 = 0x80000001 | BIT(4);
	sregs.cr3 = 0;
	sregs.cr4 = BIT(5);
	sregs.efer = BIT(8) | BIT(10);
	sregs.cs = (struct kvm_segment){
		.limit = ~0u, .selector = 8, .type = 11, .present = 1, .s = 1, .l = 1, .g = 1
	};
	sregs.ss = sregs.ds = (struct kvm_segment){
		.limit = ~0u, .selector = 16, .type = 3, .present = 1, .s = 1, .db = 1, .g = 1
	};
	assert_int_equal(ioctl(vcpu, KVM_SET_SREGS, &sregs), 0);
	assert_int_equal(ioctl(vcpu, KVM_SET_REGS, &regs), 0);
	close(vm);
	return vcpu;
}

static volatile bool kicking;

/* As often as it takes: on a busy machine a kick may come between two KVM_RUNs. */
static void *kick_later(void *thread)
{
	while (kicking) {
		usleep(20000);
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
	}
	return NULL;
}

static void a_handler_ends_kvm_run(void **state)
{
	struct sigaction act = { .sa_handler = note, .sa_flags = SA_RESTART };
	pthread_t self = pthread_self(), kicker;
	int kvm = open_kvm(), vcpu;
	u8 *ram;

	(void)state;
	vcpu = make_spinner(kvm, &ram);
	sigaction(SIGUSR1, &act, NULL);
	kicking = true;
	pthread_create(&kicker, NULL, kick_later, &self);
	for (u32 i = 0; i < 3; i++) {
		seen = 0;
		assert_int_equal(ioctl(vcpu, KVM_RUN, 0), -1);
		assert_int_equal(errno, EINTR);
		assert_int_equal(seen, SIGUSR1);
	}
	kicking = false;
	pthread_join(kicker, NULL);
	signal(SIGUSR1, SIG_DFL);
	close(vcpu);
	close(kvm);
	munmap(ram, 0x4000);
}

static void *run_cancellable(void *vcpu)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	while (ioctl(*(int *)vcpu, KVM_RUN, 0) < 0 && errno == EINTR)
		;
	return NULL;
}

static void a_thread_in_kvm_run_can_be_cancelled(void **state)
{
	int kvm = open_kvm(), vcpu;
	struct kvm_regs regs;
	pthread_t runner;
	void *result;
	u8 *ram;

	(void)state;
	vcpu = make_spinner(kvm, &ram);
	pthread_create(&runner, NULL, run_cancellable, &vcpu);
	for (u32 i = 0; !__atomic_load_n(&ram[SPINS], __ATOMIC_RELAXED); i++) {
		assert_true(i < 10000);
		usleep(1000);
	}
	assert_int_equal(pthread_cancel(runner), 0);
	assert_int_equal(pthread_join(runner, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	assert_int_equal(ioctl(vcpu, KVM_GET_REGS, &regs), 0); /* and leaves no lock behind */
	assert_int_equal(regs.rip, SPIN);
	close(vcpu);
	close(kvm);
	munmap(ram, 0x4000);
}

static void bad_pointers_are_errors_also_with_all_signals_blocked(void **state)
{
	int kvm = open_kvm();
	sigset_t all, old;

	(void)state;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	assert_int_equal(ioctl(kvm, KVM_GET_MSR_INDEX_LIST, 16), -1);
	assert_int_equal(errno, EFAULT);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	assert_int_equal(ioctl(kvm, KVM_GET_MSR_INDEX_LIST, 16), -1);
	assert_int_equal(errno, EFAULT);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	close(kvm);
}

static int inside(const char *model)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_way_to_open_leads_to_kvm),
		cmocka_unit_test(other_files_are_not_touched),
		cmocka_unit_test(a_request_is_32_bits_wide),
		cmocka_unit_test(copies_of_a_descriptor_are_the_same_file),
		cmocka_unit_test(a_copy_over_a_descriptor_of_ours_replaces_it),
		cmocka_unit_test(ranges_are_closed),
		cmocka_unit_test(a_child_has_kvm_but_not_the_parents_vms),
		cmocka_unit_test(parameters_can_be_read),
		cmocka_unit_test(the_modules_folders_cannot_be_listed),
		cmocka_unit_test(the_vendors_module_is_that_of_the_model),
		cmocka_unit_test(dev_kvm_looks_like_a_device),
		cmocka_unit_test(cpuid_shows_the_model),
		cmocka_unit_test(handlers_are_the_programs_own),
		cmocka_unit_test(the_programs_own_faults_reach_its_handler),
		cmocka_unit_test(a_one_shot_handler_runs_once),
		cmocka_unit_test(a_process_without_handlers_dies_of_the_right_signal),
		cmocka_unit_test(a_handler_ends_kvm_run),
		cmocka_unit_test(a_thread_in_kvm_run_can_be_cancelled),
		cmocka_unit_test(bad_pointers_are_errors_also_with_all_signals_blocked),
	};

	asked_for = model ? model_find(model) : NULL;
	if (model && !asked_for)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#ifndef PR_SET_MDWE /* Linux 6.3 */
#define PR_SET_MDWE 65
#define PR_GET_MDWE 66
#endif
#define REFUSE_EXEC_GAIN 1

/* As systemd's MemoryDenyWriteExecute: memory that was writable never becomes executable. */
static void deny_write_exec(void)
{
	if (prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0))
		perror("PR_SET_MDWE");
}

static int run_with_write_exec_denied(void)
{
	int failed = 0;

	if (prctl(PR_GET_MDWE, 0, 0, 0, 0) < 0) {
		puts("SKIP: where W^X is enforced: this kernel has no PR_SET_MDWE (Linux 6.3)");
		return 0;
	}
	for (u32 i = 0; model_at(i); i++)
		failed |= run_under_vpmu(model_at(i)->name, deny_write_exec);
	return failed;
}

#define SKIPPED 4

int main(int argc, char **argv)
{
	int failed = 0;

	if (argc > 1 && !strcmp(argv[1], "inside"))
		return inside(argv[2]);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	puts("SKIP: a sanitizer's runtime cannot be loaded behind a preloaded library");
	return SKIPPED;
#endif
	failed |= run_under_vpmu(NULL, NULL);
	for (u32 i = 0; model_at(i); i++)
		failed |= run_under_vpmu(model_at(i)->name, NULL);
	failed |= run_with_write_exec_denied();
	return !!failed;
}
