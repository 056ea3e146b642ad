/* SPDX-License-Identifier: MIT */
/*
 * The parts of `vpmu exporter`: HTTP in, metrics out, and looks at the VMs in between. One thread.
 */
#ifndef CLI_EXPORTER_EXPORTER_H
#define CLI_EXPORTER_EXPORTER_H

#include <stddef.h>

#include "base/types.h"

/* --- collect.c: what the VMs of this user say --- */

#define MAX_VMS		256
#define MAX_PROCESS_VMS 16 /* of one process, so that none of them hides the others */

/* What a series of metrics_text.c shows. */
enum vm_value {
	VM_INSTRUCTIONS,
	VM_USER_INSTRUCTIONS,
	VM_BRANCHES,
	VM_CYCLES,
	VM_EXITS,
	VM_EXITS_IO,
	VM_EXITS_MMIO,
	VM_EXITS_SIGNAL,
	VM_EXITS_IRQ_WINDOW,
	VM_EXITS_NMI_WINDOW,
	VM_EXITS_REQUEST_IRQ,
	VM_EXITS_HALT,
	VM_EXITS_HYPERCALL,
	VM_EXITS_CPUID,
	VM_EXITS_MSR,
	VM_HALTED_NS,
	VM_IRQS,
	VM_NMIS,
	VM_PMU_READS_EXITED,
	VM_PMU_WRITES_EXITED,
	VM_PMU_READS_PASSED,
	VM_PMU_WRITES_PASSED,
	VM_STARVED,
	VM_STARVATIONS,
	VM_CODE_CACHE_BYTES,
	VM_CODE_CACHE_FLUSHES,
	VM_TRANSLATED_BLOCKS,
	VM_VCPUS,
	VM_UPTIME_NS,
	VM_MIPS,
	NVM_VALUES
};

struct vm_snapshot {
	int pid;
	u32 vm;
	char command[32], model[32], mode[16], accounting[16];
	u64 value[NVM_VALUES];
	u64 from_ns, from; /* uptime and instructions at the time that VM_MIPS counts from */
};

struct vm_snapshots {
	u32 count;
	u32 silent;   /* processes that have not answered in time */
	u32 left_out; /* VMs beyond MAX_VMS, or MAX_PROCESS_VMS */
	struct vm_snapshot vm[MAX_VMS];
};

/* Asks every VM. It takes `patience_ms` at most, however many there are and whatever they do. */
void exporter_collect(struct vm_snapshots *look, const struct vm_snapshots *before,
		      u32 patience_ms);

/* --- metrics_text.c: the metrics, as text --- */

enum metrics_format {
	METRICS_PROMETHEUS, /* text format 0.0.4 */
	METRICS_OPEN,	    /* OpenMetrics 1.0.0 */
};

struct exporter_state {
	u64 scrapes;
};

/* Memory for the caller to free; NULL: there is none. */
char *exporter_text(const struct vm_snapshots *look, const struct exporter_state *state,
		    enum metrics_format format, size_t *size);

/* --- http.c: what a client asks for --- */

#define MAX_REQUEST 8192

enum http_verdict {
	HTTP_INCOMPLETE, /* more is to come */
	HTTP_METRICS,
	HTTP_INDEX,
	HTTP_BAD,	/* 400 */
	HTTP_NOT_FOUND, /* 404 */
	HTTP_NOT_A_GET, /* 405 */
	HTTP_TOO_LONG,	/* 431 */
};

struct http_request {
	bool head; /* without the body */
	enum metrics_format format;
};

/* Looks at what has come of a request so far: `n` bytes, at most MAX_REQUEST. */
enum http_verdict http_parse(const char *text, size_t n, struct http_request *request);
/* The head of an answer with a body of `size` bytes; returns its length. */
size_t http_head(enum http_verdict verdict, const struct http_request *request, size_t size,
		 char *out, size_t room);
/* The body of an answer that is not the metrics. */
const char *http_page(enum http_verdict verdict);

/* --- server.c: connections --- */

/* An exit code. Returns on SIGINT and SIGTERM, or if the address cannot be had. */
int exporter_serve(const char *address, bool allow_remote);

#endif
