// SPDX-License-Identifier: MIT
/*
 * The guest's end of the network test: sends random megabytes over TCP, or receives until the other
 * end closes, and prints the CRC-32 of what went through. (busybox's nc moves a kilobyte at a
 * time.)
 *
 * usage: stream send|receive ADDRESS PORT [MEGABYTES]
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BLOCK (1u << 20)

static unsigned char block[BLOCK];
static unsigned table[256];

static void table_init(void)
{
	for (unsigned i = 0; i < 256; i++) {
		table[i] = i;
		for (int bit = 0; bit < 8; bit++)
			table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320 : 0);
	}
}

static unsigned crc(unsigned value, const unsigned char *data, size_t size)
{
	value = ~value;
	for (size_t i = 0; i < size; i++)
		value = value >> 8 ^ table[(value ^ data[i]) & 0xff];
	return ~value;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static int connect_to(const char *address, const char *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	inet_aton(address, &to.sin_addr);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
		fail("connect");
	return fd;
}

static unsigned send_all(int fd, unsigned megabytes)
{
	FILE *random = fopen("/dev/urandom", "r");
	unsigned sum = 0;

	if (!random || fread(block, BLOCK, 1, random) != 1)
		fail("/dev/urandom");
	for (unsigned i = 0; i < megabytes; i++) {
		memcpy(block, &i, sizeof(i)); /* no two are the same */
		sum = crc(sum, block, BLOCK);
		for (size_t sent = 0; sent < BLOCK;) {
			ssize_t n = write(fd, block + sent, BLOCK - sent);

			if (n <= 0)
				fail("write");
			sent += n;
		}
	}
	return sum;
}

static unsigned receive_all(int fd)
{
	unsigned sum = 0;
	ssize_t n;

	while ((n = read(fd, block, BLOCK)) > 0)
		sum = crc(sum, block, n);
	if (n < 0)
		fail("read");
	return sum;
}

int main(int argc, char **argv)
{
	int fd;

	if (argc < 4)
		return 2;
	table_init();
	fd = connect_to(argv[2], argv[3]);
	printf("%u\n", strcmp(argv[1], "send") ? receive_all(fd) : send_all(fd, atoi(argv[4])));
	close(fd);
	return 0;
}
