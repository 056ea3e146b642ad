/* SPDX-License-Identifier: MIT */
/*
 * The parts of `vpmu perf`: what perf's arguments say about files, and what of a guest must outlive
 * it, so that perf on the host can name addresses.
 */
#ifndef CLI_PERF_PERF_H
#define CLI_PERF_PERF_H

#include <limits.h>
#include <stdbool.h>

#include "cli/cli.h"

/* --- perf_line.c: perf's arguments; argv[0] is the first of them --- */

/* What perf writes to and reads from unless it is told otherwise. */
#define PERF_DATA "perf.data"

/* Whether perf works on files only, and so on the host. */
bool perf_is_for_host(char **argv);
/* The index of the word "record", if perf writes a file of samples; -1: it does not. */
int perf_find_record(char **argv);
/* The value of -o or --output of perf itself, not of the program that it starts; NULL: none. */
const char *perf_output(char **argv);
/* The value of rr's own -o or --output-trace-dir, or NULL. */
const char *rr_output(char **argv);
/* The file that a command for the host reads. */
const char *perf_input(char **argv);

/* --- perf_symbols.c: names for the host's perf --- */

/* Where perf keeps files by build id; false: nowhere. */
bool perf_cache(char path[PATH_MAX]);
/* A recording, by the folder that it was in when the file was opened. */
struct perf_file {
	const char *path; /* as the user named it */
	const char *name; /* the last part of it */
	int folder;	  /* -1: there is none */
};

void perf_file_open(const char *path, struct perf_file *file);
void perf_file_close(struct perf_file *file);
/*
 * Takes what a guest has left in the folder `scratch`: the symbols of its kernel go to perf's
 * cache, maps of JIT code to the folder DATA.maps and to /tmp, unless `data` is NULL. `scratch` is
 * removed. What is in it is the guest's, and may be anything. `data` was opened before the guest
 * could change what its name leads to.
 */
void perf_take_symbols(const char *scratch, const struct perf_file *data);
/* Puts the maps of DATA.maps where perf looks for them. */
void perf_place_maps(const char *data);

#endif
