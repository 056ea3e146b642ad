/* SPDX-License-Identifier: MIT */
/*
 * The parts of `vpmu exec`: from options to a machine, and a session with the command in it.
 */
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <termios.h>

#include "base/trace.h"
#include "base/types.h"
#include "cli/base/command.h"
#include "exec/qmp.h"
#include "exec/wire.h"

#define MAX_SHARED 16

/* Files for vpmu exec --passes (cli/passes). */
struct exec_passes {
	int shadow; /* struct hwpmu_shadow, for the guest's processors */
	int counts; /* takes what the command writes to COUNTS_FD */
};

/* The terminal that vpmu was started on. */
struct host_terminal {
	u32 files;    /* bit n: standard file n is a terminal */
	bool is_ours; /* to read keys from: file 0 is it, and vpmu is no background job */
	bool is_raw;
	struct termios before; /* modes of file 0 at the start */
};

struct exec_options {
	const char *cpu, *pmu, *accounting, *timing, *llc,
		*llc_life; /* NULL: as vpmu kvm chooses */
	bool harden;
	const char *machine, *kernel;
	char *filter;		       /* a request of the control socket, or NULL */
	u32 cpus, memory;	       /* memory in MiB */
	u32 timeout;		       /* in seconds, 0: none */
	u64 started;		       /* when vpmu was, monotonic milliseconds */
	struct host_terminal terminal; /* as it was then */
	bool network, verbose, dry_run, cold, help;
	bool tcg;			   /* on QEMU's own translator */
	bool no_cache;			   /* translations are neither kept nor recalled */
	bool virtual_clock, deterministic; /* the second implies the first */
	bool has_seed;
	u64 seed;
	u32 quantum; /* 0: the library's */
	bool baseline;
	bool all_events;		  /* --passes */
	const struct exec_passes *passes; /* what it needs; NULL: nothing */
	const char *trace_hash;		  /* a file for hashes of a deterministic run, or NULL */
	u32 trace_every;		  /* instructions between them; 0: TRACE_EVERY */
	char **words;			  /* the command line, without the name of vpmu, */
	u32 option_words;		  /* and how much of it is options */
	const char *in;			  /* a guest that stays, or NULL: one for this command */
	const char *name;		  /* of a guest that is to stay, or NULL */
	const char *made;	  /* the last option that says how a guest is made, or NULL */
	char *shared[MAX_SHARED]; /* folders to write, resolved */
	u32 shared_count;
	const char *qemu; /* more arguments for QEMU, words with spaces between them; or NULL */
	char **command;
};

/* --- exec.c: the command line --- */

/*
 * For commands that take these options too: the index of the first word that is neither an option
 * nor its value, "--" included; argc if there is none. -1: an unknown option, and the user has been
 * told. *is_in: --in is among them.
 */
int exec_options_end(const struct command *command, int argc, char **argv, bool *is_in);
/* Reads all options; *i is the index of the word after them. An exit code. */
int exec_options_read(struct exec_options *options, char **argv, int *i);
/* Whether they can be had together. An exit code. */
int exec_options_check(struct exec_options *options);

#define EXEC_DEFAULTS                                                      \
	.machine = "microvm", .kernel = "cloud", .cpus = 1, .memory = 512, \
	.baseline = getenv("VPMU_BASELINE")

/* --- kernel.c: where a kernel and its modules are --- */

struct exec_kernel {
	char image[PATH_MAX];
	char modules[PATH_MAX]; /* folder of the modules to load, may not exist */
};

/* Fetches it, if it is one of Debian's that was not used before. An exit code; it has said what
 * went wrong. */
int kernel_find(const char *wanted, struct exec_kernel *kernel);
/* Whether one of Debian's is there already, and where. */
bool kernel_is_kept(const char *wanted, char folder[PATH_MAX]);
/* The user's own folder for what can be made again; false if there is none that can be written. */
bool kernel_cache(char path[PATH_MAX]);
/* All folders that either looks at, by number; false: this user has none by that number. */
#define KERNEL_PLACES 4
bool kernel_place(u32 number, char path[PATH_MAX]);

/* --- own_places.c: what guests only read --- */

#define MAX_OWN_LINKS 40 /* as Linux follows on the way to a file */
#define MAX_OWN	      ((KERNEL_PLACES + 1) * (MAX_OWN_LINKS + 1))

struct own_places {
	char *path[MAX_OWN + 1]; /* without their first slashes; NULL after the last */
	u32 count;
};

/* Finds all places of kernels and the file of --trace-hash (NULL: there is none), whether or not
 * they exist, and the links on the way to them. False: out of memory. */
bool own_find(struct own_places *own, const char *trace);
void own_free(struct own_places *own);

/* --- trust.c: whose kernels and machines are booted --- */

/* Why something is not, and what to do about that. */
struct distrust {
	char why[PATH_MAX + 400], fix[PATH_MAX + 400];
};

/* Whether only the user and root can have made or changed this file. */
bool trust_attributes(const char *path, const struct stat *st, struct distrust *distrust);
/* Checks a folder that vpmu-kernel made, all that is booted from it, and the cache it is in. */
bool trust_kernel(const char *folder, struct distrust *distrust);

/* --- initramfs.c: the guest's first file system --- */

struct initramfs {
	const char *init, *modules;
	bool network; /* with the modules for it */
};

/* A descriptor of it, or -1 with errno; `failed` is the file that could not be read then, or "". */
int initramfs_make(const struct initramfs *initramfs, char failed[PATH_MAX]);

/* --- machine_line.c: QEMU's command line --- */

#define MAX_WORDS 80

/* What QEMU forbids itself, by seccomp, before it hears from a guest. */
#define QEMU_SANDBOX "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"

struct exec_trace;
struct exec_kept;

struct line {
	char *word[MAX_WORDS + 1];
	u32 count;
	bool is_short;	/* words are missing: they were too many */
	bool is_broken; /* words are missing: memory was out */
};

/* Descriptors of ours that QEMU inherits, -1 where it does without. */
struct wiring {
	int link, files; /* sockets: to the guest's first process, to the server of files */
	int monitor;	 /* a socket */
	int initramfs;	 /* a file; machines that are resumed have none */
	int ram;	 /* a file */
	int console;	 /* for writing only, as QEMU wants to open it */
	int turns;	 /* a file: virtual_time.c */
	int written;	 /* a file: base/written.h */
	int profile;	 /* a file: base/profile.h */
	int shadow;	 /* a file: hwpmu/shadow.h */
	struct exec_trace *trace;     /* NULL: none */
	const struct exec_kept *kept; /* NULL: none */
	bool is_resumable;	      /* for a machine that is saved or resumed */
};

#define NO_WIRING { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, NULL, NULL, false }

bool line_has_machine(const char *name);
bool line_can_resume(const char *machine);
/* khz: of the guest's TSC. */
void line_make(struct line *line, const struct exec_options *options, const char *image, u32 khz,
	       const struct wiring *wiring);
void line_print(FILE *out, const struct line *line);

/* --- saved_machine.c: machines that have booted, kept for the next start --- */

struct exec_state {
	int ram, device; /* files in memory */
	int kept;	 /* the file that ram is filled from, or -1 */
	u64 kept_offset;
	u32 khz;
};

#define NO_STATE { .ram = -1, .device = -1, .kept = -1 }

/* Finds the state of such a machine, or makes it; its ram is of the right size, and empty if it is
 * kept. False: start without one; nothing is wrong. */
bool state_get(const struct exec_options *options, const struct exec_kernel *kernel,
	       const char *init, struct exec_state *state);
/* Fills its ram, which takes longer than the rest: QEMU starts meanwhile. */
bool state_fill(const struct exec_state *state);
/* Closes all files of it. */
void state_close(struct exec_state *state);
/* It is of no use. */
void state_forget(const struct exec_options *options, const struct exec_kernel *kernel,
		  const char *init);

/* --- state_files.c: their files in the cache folder --- */

struct state_file {
	int fd;
	bool is_named; /* while it is written */
	char name[PATH_MAX + 32];
};

/* A file for the state that is to be at this path. A descriptor to write it by, or -1: errno. */
int state_file_open(const char *cache, const char *path, struct state_file *file);
/* Closes it, and puts it in its place if it is whole. False: it is gone; errno. */
bool state_file_close(struct state_file *file, bool is_whole, const char *path);
/* Removes what killed processes have left, and a state if there are too many. */
void state_files_trim(const char *cache);

/*
 * What a guest's VM, its file server and the command have in common besides the guest's memory.
 * Descriptors, -1 where there is none. All but `turns`, which any guest on virtual time has, and
 * `written` are for --deterministic.
 */
struct server_files {
	int turns; /* a file with a word (base/turns.h) */
	/* Files in memory that the file server shows (exec/guest_files.h) */
	int order, input;
	int frames, frames_end; /* a socket's: ours, the file server's */
	int profile;		/* a file of base/profile.h */
	int written;		/* a file of base/written.h */
};

#define NO_SERVER_FILES { -1, -1, -1, -1, -1, -1, -1 }

/* --- virtual_time.c: guests on virtual time --- */

/* Makes those of virtual time; reads all of standard input if the guest is deterministic, until the
 * deadline (0: there is none). An exit code. */
int virtual_prepare(const struct exec_options *options, u64 deadline, struct server_files *files);
/* The file of struct turns (base/turns.h); -1: errno. */
int virtual_turns(const struct exec_options *options);
/* Puts the order where a deterministic guest finds it, and calls the guest. An exit code. */
int virtual_order(const struct server_files *files, const void *body, u32 size);
/* In the process that becomes QEMU. */
void virtual_environment(const struct exec_options *options, const struct wiring *wiring);
/* Bytes that a seed stands for. */
void virtual_seed(u64 seed, u8 *bytes, u32 size);

/* --- trace_file.c: hashes of a deterministic run, for vpmu diverge --- */

struct exec_trace {
	FILE *out;	 /* NULL: there is no trace */
	int socket, end; /* ours, QEMU's; -1: closed */
	struct trace_plan plan;
	u8 part[sizeof(struct trace_record)]; /* the record that is being read */
	u32 part_size, detail_left;	      /* bytes of it that have come; of what follows it */
	bool is_over;			      /* the last record has come */
	bool is_stopped;		      /* and it is a TRACE_STOP: not more was asked for */
	const char *fault;		      /* why there will be no more, or NULL */
};

/* Opens the file, if the options want one, and writes the header. An exit code. */
int trace_prepare(const struct exec_options *options, const struct server_files *files,
		  struct exec_trace *trace);
/* In the process that becomes QEMU, after virtual_environment(). */
void trace_export(const struct exec_trace *trace);
/* Whether more is to be read from its socket. */
bool trace_is_open(const struct exec_trace *trace);
void trace_read(struct exec_trace *trace); /* what has come */
/* An exit code: is the file complete? */
int trace_close(const struct exec_options *options, struct exec_trace *trace);

/* --- kept_files.c: kept translations --- */

struct exec_kept {
	bool is_open, is_confined;
	bool is_late;		      /* nothing more is merged before QEMU ends */
	int store, file;	      /* the store's, the news'; -1: there is none */
	const struct kept_news *news; /* NULL: not mapped yet */
	u64 merged, seen;	      /* bytes of them, by kept_files_merge_early() */
};

/* Is_confined: so is the process that they are for (kept_store.h). */
void kept_files_open(const struct exec_options *options, bool is_confined, struct exec_kept *kept);
/* In the process that becomes QEMU; NULL: it has none. */
void kept_files_export(const struct exec_kept *kept);
/* Leaves a process that does so when this one, which may become another program, has ended. */
bool kept_files_watch(struct exec_kept *kept);
/* Called now and then while QEMU runs. True: there were new ones since the last time. */
bool kept_files_merge_early(struct exec_kept *kept);
#define LOOK_MS 100
/* QEMU has ended. */
void kept_files_close(struct exec_kept *kept);

/* --- machine.c: QEMU and the server of the host's files --- */

#define QEMU "qemu-system-x86_64"

struct exec_machine {
	pid_t qemu, share;
	u64 deadline;		/* of the command, monotonic milliseconds; 0: there is none */
	int link;		/* to the guest's first process */
	bool resumed;		/* which waits, and does not say so again */
	struct monitor monitor; /* of QEMU, in which it says that the machine has stopped */
	int ram;		/* the guest's memory; 0: that is not ours to give back */
	int console;		/* what QEMU and the guest's kernel have said */
	off_t console_cut;	/* what they said before it is forgotten */
	struct server_files files;
	struct exec_trace trace;
	struct exec_kept kept;
};

/* When the command's time is over that begins with vpmu; 0: it may take for ever. */
u64 machine_deadline(const struct exec_options *options);
/* That it is: the exit code, as that of timeout(1), and the message, with --timeout's number. */
#define STATUS_TIMEOUT 124
#define TIMED_OUT      "the time limit of %u s has passed"
/* What is done once, fetching a kernel and the boot of a machine that is saved, takes nothing of
 * the command's time. An exit code. */
int machine_start(const struct exec_options *options, struct exec_machine *machine);
/* Progress for the user, on a terminal only: standard error belongs to the command. With --verbose
 * the guest's console is the progress. */
void machine_say(const struct exec_options *options, const char *what);
/* The server of the host's files, on its end of a socket. Is_brief: for a guest that is to be
 * saved, which is told nothing that it may believe later. */
pid_t machine_start_share(int socket, const struct exec_options *options,
			  const struct server_files *files, bool is_brief);
/* Of the guest's TSC. */
u32 machine_khz(const struct exec_options *options);
/* Whether QEMU may open nothing for writing by its name. */
bool machine_is_confined(const struct exec_options *options);
/* QEMU alone, on a command line. */
pid_t machine_start_qemu(const struct line *line, const struct wiring *wiring,
			 const struct exec_options *options);
void machine_stop(struct exec_machine *machine);
/* Where it is, as execvp() would find it. */
bool machine_find_qemu(char path[PATH_MAX]);

/* --- console.c: what QEMU and the guest's kernel say --- */

/* Where they write to: a file in memory, which stays open to be read, or our stderr. False: errno
 * says why. */
bool console_open(bool verbose, int *console, int *kept);
/* Forgets all but the last of it: to be called every CONSOLE_MS. */
void console_trim(struct exec_machine *machine);
#define CONSOLE_MS 1000
/* The last of it, to stderr. */
void console_explain(const struct exec_machine *machine);

/* --- event_filter.c: what the guest may count --- */

/* Turns the name of a filter, or of a file with one, into a request; an exit code. */
int filter_choose(const char *wanted, const char *cpu, char **request);
/* Before the command starts. */
int filter_apply(const char *request, pid_t qemu);

/* --- stay_server.c: guests that stay --- */

/* A socket to the process of a guest that stays. An exit code. */
int stay_connect(const char *name, int *fd);
/* A pidfd of the process at the other end of that socket, or -1. */
int stay_process(int fd);
/* Makes a name the process's own, for as long as it has the descriptor. An exit code. */
int stay_claim(const char *name, int *lock);
/* Serves commands that want to run in the guest, until it ends or is ended. */
void stay_serve(const char *name, struct exec_machine *machine, int listener);
int stay_listen(const char *name); /* -1: errno */

/* --- host_terminal.c --- */

/* What the standard files are. Before a machine starts: other processes of a pipeline may change
 * modes meanwhile, and those to return to are the shell's. */
void terminal_look(struct host_terminal *terminal);
bool terminal_is_foreground(void);		       /* vpmu, on the terminal that is file 0 */
int terminal_fd(const struct host_terminal *terminal); /* to write to, -1: there is none */
struct size terminal_size(const struct host_terminal *terminal);
/* If it is ours, and still is. */
void terminal_make_raw(struct host_terminal *terminal);
void terminal_restore(struct host_terminal *terminal);

/* --- session.c --- */

/* Hands the command over and carries its bytes; returns the exit code. Without a command it returns
 * when the guest has been set up. */
int session_run(const struct exec_options *options, struct exec_machine *machine);

#endif
