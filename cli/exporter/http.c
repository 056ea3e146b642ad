// SPDX-License-Identifier: MIT
/*
 * As much of HTTP/1.1 as a scraper needs (RFC 9112): a request line, headers up to an empty line,
 * no body. Each answer closes its connection. Input is hostile: nothing here allocates,
 * and every look is bounded by MAX_REQUEST bytes.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli/exporter/exporter.h"

#define OPEN_METRICS "application/openmetrics-text"

static const struct {
	enum http_verdict verdict;
	const char *status, *page;
} answers[] = {
	{ HTTP_METRICS, "200 OK", NULL },
	{ HTTP_INDEX, "200 OK",
	  "<!doctype html><title>vpmu exporter</title><a href=\"/metrics\">metrics</a>\n" },
	{ HTTP_BAD, "400 Bad Request", "this is not a request of HTTP/1\n" },
	{ HTTP_NOT_FOUND, "404 Not Found", "there is nothing here but /metrics\n" },
	{ HTTP_NOT_A_GET, "405 Method Not Allowed", "only GET and HEAD are served\n" },
	{ HTTP_TOO_LONG, "431 Request Header Fields Too Large", "the request is too long\n" },
};

static u32 answer_of(enum http_verdict verdict)
{
	u32 i = 0;

	while (i + 1 < ARRAY_SIZE(answers) && answers[i].verdict != verdict)
		i++;
	return i;
}

const char *http_page(enum http_verdict verdict)
{
	return answers[answer_of(verdict)].page ?: "";
}

/* The end of the headers, after their empty line; NULL: it has not arrived yet. */
static const char *find_end(const char *text, size_t n)
{
	const char *end = memmem(text, n, "\r\n\r\n", 4), *plain = memmem(text, n, "\n\n", 2);

	if (end && (!plain || end < plain))
		return end + 4;
	return plain ? plain + 2 : NULL;
}

/* A word of a line that ends at `end`; *at moves past it and the blank that follows. */
static bool take_word(const char **at, const char *end, const char **word, size_t *n)
{
	const char *stop = memchr(*at, ' ', end - *at);

	*word = *at;
	*n = (stop ?: end) - *at;
	*at = stop ? stop + 1 : end;
	return *n > 0;
}

static bool equals(const char *word, size_t n, const char *text)
{
	return n == strlen(text) && !memcmp(word, text, n);
}

static enum http_verdict find_path(const char *path, size_t n)
{
	const char *query = memchr(path, '?', n);

	if (query)
		n = query - path;
	if (equals(path, n, "/metrics"))
		return HTTP_METRICS;
	return equals(path, n, "/") ? HTTP_INDEX : HTTP_NOT_FOUND;
}

static enum http_verdict parse_line(const char *line, const char *end, bool *head)
{
	const char *method, *path, *version;
	size_t nmethod, npath, nversion;

	if (!take_word(&line, end, &method, &nmethod) || !take_word(&line, end, &path, &npath) ||
	    !take_word(&line, end, &version, &nversion) || line != end || path[0] != '/' ||
	    nversion != 8 || memcmp(version, "HTTP/1.", 7))
		return HTTP_BAD;
	*head = equals(method, nmethod, "HEAD");
	return *head || equals(method, nmethod, "GET") ? find_path(path, npath) : HTTP_NOT_A_GET;
}

/* Whether a header "Accept" names OpenMetrics. Weights are not looked at: who names it
 * can read it. */
static bool accepts_open(const char *line, const char *end)
{
	static const char name[] = "accept:";
	size_t n = sizeof(name) - 1;

	return (size_t)(end - line) > n && !strncasecmp(line, name, n) &&
	       memmem(line, end - line, OPEN_METRICS, strlen(OPEN_METRICS));
}

enum http_verdict http_parse(const char *text, size_t n, struct http_request *request)
{
	const char *end = find_end(text, n), *line = text, *stop;
	enum http_verdict verdict = HTTP_INCOMPLETE;

	*request = (struct http_request){ .format = METRICS_PROMETHEUS };
	if (!end)
		return n >= MAX_REQUEST ? HTTP_TOO_LONG : HTTP_INCOMPLETE;
	for (; (stop = memchr(line, '\n', end - line)); line = stop + 1) {
		const char *last = stop > line && stop[-1] == '\r' ? stop - 1 : stop;

		if (verdict == HTTP_INCOMPLETE)
			verdict = parse_line(line, last, &request->head);
		else if (accepts_open(line, last))
			request->format = METRICS_OPEN;
	}
	return verdict;
}

static const char *type_of(enum http_verdict verdict, enum metrics_format format)
{
	if (verdict == HTTP_INDEX)
		return "text/html; charset=utf-8";
	if (verdict == HTTP_METRICS && format == METRICS_OPEN)
		return OPEN_METRICS "; version=1.0.0; charset=utf-8";
	return verdict == HTTP_METRICS ? "text/plain; version=0.0.4; charset=utf-8"
				       : "text/plain; charset=utf-8";
}

size_t http_head(enum http_verdict verdict, const struct http_request *request, size_t size,
		 char *out, size_t room)
{
	int n = snprintf(out, room,
			 "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%sConnection: "
			 "close\r\nX-Content-Type-Options: nosniff\r\n\r\n",
			 answers[answer_of(verdict)].status, type_of(verdict, request->format),
			 size, verdict == HTTP_NOT_A_GET ? "Allow: GET, HEAD\r\n" : "");

	return n < 0 || (size_t)n >= room ? 0 : n;
}
