// SPDX-License-Identifier: MIT
/*
 * Any bytes as a request to vpmu exporter, arriving one after the other: the verdict is that of the
 * first part that is complete, nothing is looked at beyond the part, and each verdict has an
 * answer.
 */
#include <stdlib.h>
#include <string.h>

#include "base/must.h"
#include "cli/exporter/exporter.h"
#include "fuzz/fuzz.h"

void fuzz_set_up(void)
{
}

/* In memory of just that size: a sanitizer sees an access beyond it. */
static enum http_verdict parse(const u8 *text, size_t n, struct http_request *request)
{
	char *part = malloc(n ? n : 1);
	enum http_verdict verdict;

	must(part);
	memcpy(part, text, n);
	verdict = http_parse(part, n, request);
	free(part);
	return verdict;
}

static void check_answer(enum http_verdict verdict, const struct http_request *request)
{
	char head[512];
	size_t n = http_head(verdict, request, ~0ull, head, sizeof(head));

	if (!n || memcmp(head, "HTTP/1.1 ", 9) || memcmp(head + n - 4, "\r\n\r\n", 4))
		fuzz_fail("verdict %d has no answer", verdict);
}

void fuzz_one(struct fuzz_input *in)
{
	static u8 text[MAX_REQUEST];
	size_t size = fuzz_take(in, text, sizeof(text)), n = 0;
	struct http_request request;
	enum http_verdict verdict;

	do
		verdict = parse(text, n, &request);
	while (verdict == HTTP_INCOMPLETE && n++ < size);
	if (verdict == HTTP_INCOMPLETE)
		return;
	if (verdict == HTTP_TOO_LONG && n < MAX_REQUEST)
		fuzz_fail("%zu bytes are too long", n);
	check_answer(verdict, &request);
}
