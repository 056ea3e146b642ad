// SPDX-License-Identifier: MIT
/*
 * vpmu exporter's HTTP and text: whatever a client sends, and whatever a process is called.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/exporter/exporter.h"
#include "unit/canned_vm.h"

#define OPEN "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n"

static const struct {
	const char *text;
	enum http_verdict verdict;
	bool head;
	enum metrics_format format;
} requests[] = {
	{ "", HTTP_INCOMPLETE, false, METRICS_PROMETHEUS },
	{ "GET /metrics HTTP/1.1\r\n", HTTP_INCOMPLETE, false, METRICS_PROMETHEUS },
	{ "GET /metrics HTTP/1.1\r\n\r", HTTP_INCOMPLETE, false, METRICS_PROMETHEUS },
	{ "GET /metrics HTTP/1.1\r\n\r\n", HTTP_METRICS, false, METRICS_PROMETHEUS },
	{ "GET /metrics HTTP/1.0\n\n", HTTP_METRICS, false, METRICS_PROMETHEUS },
	{ "GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n" OPEN "\r\n", HTTP_METRICS, false,
	  METRICS_OPEN },
	{ "GET /metrics HTTP/1.1\r\naCCEPT:application/openmetrics-text\r\n\r\n", HTTP_METRICS,
	  false, METRICS_OPEN },
	{ "GET /metrics HTTP/1.1\r\nX-" OPEN "\r\n", HTTP_METRICS, false, METRICS_PROMETHEUS },
	{ "GET /metrics HTTP/1.1\r\nAccept:\r\n\r\n", HTTP_METRICS, false, METRICS_PROMETHEUS },
	{ "HEAD / HTTP/1.1\r\n\r\n", HTTP_INDEX, true, METRICS_PROMETHEUS },
	{ "GET /metricsx HTTP/1.1\r\n\r\n", HTTP_NOT_FOUND, false, METRICS_PROMETHEUS },
	{ "GET /../../etc/passwd HTTP/1.1\r\n\r\n", HTTP_NOT_FOUND, false, METRICS_PROMETHEUS },
	{ "POST /metrics HTTP/1.1\r\n\r\n", HTTP_NOT_A_GET, false, METRICS_PROMETHEUS },
	{ "get /metrics HTTP/1.1\r\n\r\n", HTTP_NOT_A_GET, false, METRICS_PROMETHEUS },
	{ "GET http://x/metrics HTTP/1.1\r\n\r\n", HTTP_BAD, false, METRICS_PROMETHEUS },
	{ "GET /metrics HTTP/2.0\r\n\r\n", HTTP_BAD, false, METRICS_PROMETHEUS },
	{ "GET /metrics HTTP/1.1 x\r\n\r\n", HTTP_BAD, false, METRICS_PROMETHEUS },
	{ "GET  /metrics HTTP/1.1\r\n\r\n", HTTP_BAD, false, METRICS_PROMETHEUS },
	{ "GET /metrics\r\n\r\n", HTTP_BAD, false, METRICS_PROMETHEUS },
	{ "\r\n\r\n", HTTP_BAD, false, METRICS_PROMETHEUS },
	{ "\n\n", HTTP_BAD, false, METRICS_PROMETHEUS },
	{ "\r\nGET /metrics HTTP/1.1\r\n\r\n", HTTP_BAD, false, METRICS_PROMETHEUS },
	{ " \r\n\r\n", HTTP_BAD, false, METRICS_PROMETHEUS },
};

/* In memory that ends with the text, so that a sanitizer sees an access beyond it. */
static enum http_verdict parse(const char *text, size_t n, struct http_request *request)
{
	char *copy = malloc(n + !n);
	enum http_verdict verdict;

	assert_non_null(copy);
	memcpy(copy, text, n);
	verdict = http_parse(copy, n, request);
	free(copy);
	return verdict;
}

static void a_request_is_understood_or_refused(void **state)
{
	struct http_request request;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(requests); i++) {
		enum http_verdict verdict =
			parse(requests[i].text, strlen(requests[i].text), &request);

		if (verdict != requests[i].verdict || request.head != requests[i].head ||
		    request.format != requests[i].format)
			fail_msg("%s: verdict %d, head %d, format %d", requests[i].text, verdict,
				 request.head, request.format);
	}
}

static void a_part_of_a_request_is_never_more_than_incomplete(void **state)
{
	static const char whole[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n" OPEN "\r\n";
	struct http_request request;

	(void)state;
	for (size_t n = 0; n < sizeof(whole) - 1; n++)
		assert_int_equal(parse(whole, n, &request), HTTP_INCOMPLETE);
	assert_int_equal(parse(whole, sizeof(whole) - 1, &request), HTTP_METRICS);
}

static void what_is_too_long_is_refused(void **state)
{
	static char text[MAX_REQUEST];
	struct http_request request;

	(void)state;
	memset(text, 'a', sizeof(text));
	assert_int_equal(parse(text, sizeof(text) - 1, &request), HTTP_INCOMPLETE);
	assert_int_equal(parse(text, sizeof(text), &request), HTTP_TOO_LONG);
	memset(text, 0, sizeof(text));
	assert_int_equal(parse(text, sizeof(text), &request), HTTP_TOO_LONG);
}

static void every_answer_has_a_head(void **state)
{
	struct http_request request = { 0 };
	char head[512];

	(void)state;
	for (enum http_verdict v = HTTP_METRICS; v <= HTTP_TOO_LONG; v++) {
		size_t n = http_head(v, &request, 123, head, sizeof(head));

		assert_int_equal(n, strlen(head));
		assert_non_null(strstr(head, "Content-Length: 123\r\n"));
		assert_string_equal(head + n - 4, "\r\n\r\n");
	}
}

/* A process chooses its own name. */
static void labels_are_escaped_in_both_formats(void **state)
{
	static struct vm_snapshots look = { .count = 1 };
	struct exporter_state own = { .scrapes = 7 };
	size_t size;
	char *text;

	(void)state;
	look.vm[0] = (struct vm_snapshot){
		.pid = 5, .vm = 1, .command = "a\"b\\c\n\xff", .model = "milan"
	};
	look.vm[0].value[VM_INSTRUCTIONS] = ~0ull;
	look.vm[0].value[VM_HALTED_NS] = 1500000000;
	text = exporter_text(&look, &own, METRICS_OPEN, &size);
	assert_non_null(text);
	assert_int_equal(size, strlen(text));
	assert_non_null(
		strstr(text, "# TYPE vpmu_instructions counter\nvpmu_instructions_total{vm=\"5.1\","
			     "command=\"a\\\"b\\\\c??\"} 18446744073709551615\n"));
	assert_non_null(strstr(text, "} 1.500000000\n"));
	assert_string_equal(text + size - 6, "# EOF\n");
	free(text);
	text = exporter_text(&look, &own, METRICS_PROMETHEUS, &size);
	assert_non_null(text);
	assert_non_null(strstr(text, "# TYPE vpmu_instructions_total counter\n"));
	assert_non_null(strstr(text, "vpmu_exporter_scrapes_total 7\n"));
	assert_null(strstr(text, "EOF"));
	free(text);
}

/* --- VMs --- */

#define CLAIMED 300

/* What a process says that has one VM, and claims others and that one again. */
static char *claim(void)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	for (u32 i = 1; i <= CLAIMED; i++)
		fprintf(out,
			"vm %u model milan vcpus 1 uptime_ns 5\nstat exits 3\nvm 1\nstat exits 4\n",
			i);
	fprintf(out, "vm 4294967297\nstat exits 4");
	fclose(out);
	return text;
}

/* How many VMs of a process there are; each is there once. */
static u32 count_of(const struct vm_snapshots *look, int pid)
{
	u32 count = 0;

	for (u32 i = 0; i < look->count; i++) {
		count += look->vm[i].pid == pid;
		for (u32 j = 0; j < i; j++)
			if (look->vm[j].pid == look->vm[i].pid && look->vm[j].vm == look->vm[i].vm)
				fail_msg("VM %d.%u is there twice", look->vm[i].pid,
					 look->vm[i].vm);
		if (look->vm[i].pid == pid)
			assert_int_equal(look->vm[i].value[VM_EXITS], 3);
	}
	return count;
}

/* A QEMU that was taken over by its guest says what it likes, and is asked before others or after
 * them. */
static void a_process_that_claims_many_vms_hides_no_other(void **state)
{
	static struct vm_snapshots look, before;
	char *claims = claim();
	const char *const many[] = { claims, NULL };
	static const char *const one[] = { "vm 1 model milan vcpus 1 uptime_ns 5\nstat exits 3",
					   NULL };
	pid_t honest[2], liar;

	(void)state;
	unshare(CLONE_NEWNET); /* if we may: VMs of other tests answer once, and not to us */
	honest[0] = canned_start(one);
	liar = canned_start(many);
	honest[1] = canned_start(one);
	exporter_collect(&look, &before, 60000);
	canned_end(honest[0]);
	canned_end(liar);
	canned_end(honest[1]);
	free(claims);
	assert_int_equal(count_of(&look, honest[0]), 1);
	assert_int_equal(count_of(&look, honest[1]), 1);
	assert_int_equal(count_of(&look, liar), MAX_PROCESS_VMS);
	assert_true(look.left_out >= CLAIMED - MAX_PROCESS_VMS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_is_understood_or_refused),
		cmocka_unit_test(a_part_of_a_request_is_never_more_than_incomplete),
		cmocka_unit_test(what_is_too_long_is_refused),
		cmocka_unit_test(every_answer_has_a_head),
		cmocka_unit_test(labels_are_escaped_in_both_formats),
		cmocka_unit_test(a_process_that_claims_many_vms_hides_no_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
