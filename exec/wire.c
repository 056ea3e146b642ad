// SPDX-License-Identifier: MIT
/*
 * Frames and streams: see wire.h. Linked into vpmu and into the guest's first process.
 */
#include "exec/wire.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void make_room(struct buffer *buffer, size_t size)
{
	if (buffer->start) {
		memmove(buffer->bytes, buffer->bytes + buffer->start, buffer->end - buffer->start);
		buffer->end -= buffer->start;
		buffer->start = 0;
	}
	if (buffer->room - buffer->end >= size)
		return;
	buffer->room = 2 * (buffer->end + size);
	buffer->bytes = realloc(buffer->bytes, buffer->room);
	if (!buffer->bytes) {
		fputs("vpmu: out of memory\n", stderr);
		exit(1);
	}
}

static void append(struct buffer *buffer, const void *bytes, size_t size)
{
	if (buffer->room - buffer->end < size)
		make_room(buffer, size);
	if (size)
		memcpy(buffer->bytes + buffer->end, bytes, size);
	buffer->end += size;
}

static size_t held(const struct buffer *buffer)
{
	return buffer->end - buffer->start;
}

/* Writes to a descriptor what a buffer holds, at most `limit` bytes at a time; false if that will
 * never work again (errno). */
static bool drain(struct buffer *buffer, int fd, size_t limit)
{
	size_t size = held(buffer) < limit ? held(buffer) : limit;
	ssize_t n = size ? write(fd, buffer->bytes + buffer->start, size) : 0;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	buffer->start += n;
	if (!held(buffer))
		buffer->start = buffer->end = 0;
	return true;
}

void wire_fault(struct wire *wire, const char *what)
{
	if (!wire->fault)
		wire->fault = what;
	wire->closed = true;
}

void wire_send(struct wire *wire, enum frame_type type, u32 stream, const void *body, u32 size)
{
	struct frame frame = { type, stream, size };

	if (wire->way == WIRE_IN)
		return;
	if (held(&wire->out) + sizeof(frame) + size > WIRE_MAX_QUEUE) {
		wire_fault(wire, "it does not read what it is sent");
		return;
	}
	append(&wire->out, &frame, sizeof(frame));
	append(&wire->out, body, size);
}

void wire_flush(struct wire *wire)
{
	if (!wire->closed && !drain(&wire->out, wire->fd, SIZE_MAX))
		wire->closed = true;
}

void wire_fill(struct wire *wire)
{
	ssize_t n;

	make_room(&wire->in, 64 << 10);
	n = read(wire->fd, wire->in.bytes + wire->in.end, wire->in.room - wire->in.end);
	if (n > 0)
		wire->in.end += n;
	else if (!n || (errno != EAGAIN && errno != EINTR))
		wire->closed = true;
}

const struct frame *wire_peek(struct wire *wire, const u8 **body)
{
	static struct frame frame;
	struct buffer *in = &wire->in;

	if (wire->fault || held(in) < sizeof(frame))
		return NULL;
	memcpy(&frame, in->bytes + in->start, sizeof(frame));
	if (frame.size > WIRE_MAX_FRAME || frame.stream >= STREAMS * (wire->sessions ?: 1)) {
		wire_fault(wire, "it sent a frame that is none");
		return NULL;
	}
	if (held(in) < sizeof(frame) + frame.size)
		return NULL;
	*body = in->bytes + in->start + sizeof(frame);
	return &frame;
}

const struct frame *wire_next(struct wire *wire, const u8 **body)
{
	const struct frame *frame = wire_peek(wire, body);

	if (frame)
		wire->in.start += sizeof(*frame) + frame->size;
	return frame;
}

short wire_events(const struct wire *wire)
{
	return (wire->way == WIRE_OUT ? 0 : POLLIN) | (held(&wire->out) ? POLLOUT : 0);
}

size_t wire_waiting(const struct wire *wire)
{
	return held(&wire->out);
}

bool source_is_ready(const struct source *source)
{
	return source->fd >= 0 && source->credit;
}

void source_pump(struct source *source, struct wire *wire)
{
	static u8 bytes[64 << 10];
	size_t size = source->credit < sizeof(bytes) ? source->credit : sizeof(bytes);
	ssize_t n = read(source->fd, bytes, size);

	if (n > 0) {
		wire_send(wire, FRAME_DATA, source->stream, bytes, n);
		source->credit -= n;
	} else if (!n || (errno != EAGAIN && errno != EINTR)) {
		/* EIO of a terminal whose last user has gone is its end, too. */
		wire_send(wire, FRAME_END, source->stream, NULL, 0);
		if (source->is_owned)
			close(source->fd);
		source->fd = -1;
	}
}

void source_grant(struct source *source, struct wire *wire, u32 bytes)
{
	if (bytes > WIRE_WINDOW - source->credit)
		wire_fault(wire, "it granted a stream more than its window");
	else
		source->credit += bytes;
}

bool sink_is_waiting(const struct sink *sink)
{
	return sink->fd >= 0 && held(&sink->waiting);
}

void sink_take(struct sink *sink, struct wire *wire, const u8 *bytes, u32 size)
{
	if (held(&sink->waiting) + sink->taken + size > WIRE_WINDOW)
		wire_fault(wire, "it sent more of a stream than its window");
	else if (sink->fd >= 0)
		append(&sink->waiting, bytes, size);
	else
		sink->taken += size; /* to nowhere */
}

static void close_sink(struct sink *sink)
{
	if (!sink->is_shared)
		close(sink->fd);
	sink->fd = -1;
	sink->taken += held(&sink->waiting);
	sink->waiting.start = sink->waiting.end = 0;
}

static void report(struct sink *sink, struct wire *wire)
{
	if (sink->taken < WIRE_WINDOW / 8 && held(&sink->waiting))
		return;
	if (sink->taken)
		wire_send(wire, FRAME_CREDIT, sink->stream, &sink->taken, sizeof(sink->taken));
	sink->taken = 0;
}

void sink_pump(struct sink *sink, struct wire *wire)
{
	size_t before = held(&sink->waiting);

	if (sink->fd >= 0) {
		/* poll() promises room for this much in a pipe that others have made. */
		bool ok = drain(&sink->waiting, sink->fd, sink->is_shared ? PIPE_BUF : SIZE_MAX);

		if (!ok && errno != EPIPE)
			sink->error = errno;
		sink->taken += before - held(&sink->waiting);
		if (!ok)
			wire_send(wire, FRAME_CLOSED, sink->stream, NULL, 0);
		if (!ok || (sink->ended && !held(&sink->waiting)))
			close_sink(sink);
	}
	report(sink, wire);
}
