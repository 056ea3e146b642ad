// SPDX-License-Identifier: MIT
/*
 * Runs a target on inputs that are files, without libFuzzer: the committed corpus in `make test`, a
 * finding by hand.
 *
 * usage: TARGET FILE|FOLDER…
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

#define MAX_SIZE      (1u << 20)
#define INPUT_SECONDS 20 /* SIGALRM ends a target that hangs */

static u32 count;

static void replay_file(const char *path)
{
	FILE *file = fopen(path, "re");
	u8 *data = malloc(MAX_SIZE);
	size_t size;

	if (!file || !data) {
		perror(path);
		exit(1);
	}
	size = fread(data, 1, MAX_SIZE, file);
	fclose(file);
	printf("%s\n", path);
	alarm(INPUT_SECONDS);
	fuzz_run(data, size);
	alarm(0);
	free(data);
	count++;
}

static void replay_folder(const char *folder)
{
	struct dirent **entries;
	int n = scandir(folder, &entries, NULL, alphasort);
	char path[4096];

	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
		if (entries[i]->d_name[0] != '.')
			replay_file(path);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
}

int main(int argc, char **argv)
{
	struct stat st;

	setvbuf(stdout, NULL, _IOLBF, 0); /* the last name printed is the input that failed */
	fuzz_set_up();
	for (int i = 1; i < argc; i++)
		if (!stat(argv[i], &st) && S_ISDIR(st.st_mode))
			replay_folder(argv[i]);
		else
			replay_file(argv[i]);
	printf("%u inputs replayed\n", count);
	return count ? 0 : 1;
}
