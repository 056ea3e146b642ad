// SPDX-License-Identifier: MIT
/*
 * vpmu exporter's HTTP and text: whatever a client sends, and whatever a process is called.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/exporter/exporter.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_is_understood_or_refused),
		cmocka_unit_test(a_part_of_a_request_is_never_more_than_incomplete),
		cmocka_unit_test(what_is_too_long_is_refused),
		cmocka_unit_test(every_answer_has_a_head),
		cmocka_unit_test(labels_are_escaped_in_both_formats),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
