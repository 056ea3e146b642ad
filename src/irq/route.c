// SPDX-License-Identifier: MIT
/*
 * The routing table: see irq/route.h. The sequence count is a seqlock with the data in relaxed
 * atomics, as in H. Boehm, "Can seqlocks get along with programming language memory models?", 2012.
 * Readers spin while a writer copies, for a while, so that writers allocate and check before that.
 */
#include "irq/route.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPINS	       500
#define NAP_NS	       50000
#define DEFAULT_ROUTES (16 + 24)
#define ROW_MSI	       BIT(32)
#define ROW_PINS_SHIFT 40

static const struct route nowhere = { .pin = { ROUTE_NO_PIN, ROUTE_NO_PIN, ROUTE_NO_PIN } };

static void pack(const struct route *route, u64 row[2])
{
	row[0] = route->address;
	row[1] = route->data | (route->msi ? ROW_MSI : 0);
	for (u32 i = 0; i < ROUTE_CHIPS; i++)
		row[1] |= (u64)route->pin[i] << (ROW_PINS_SHIFT + 8 * i);
}

static struct route unpack(const u64 row[2])
{
	struct route route = { .msi = row[1] & ROW_MSI, .address = row[0], .data = row[1] };

	for (u32 i = 0; i < ROUTE_CHIPS; i++)
		route.pin[i] = row[1] >> (ROW_PINS_SHIFT + 8 * i);
	return route;
}

static bool goes_somewhere(const struct route *route)
{
	return route->msi || memcmp(route->pin, nowhere.pin, sizeof(route->pin));
}

/* KVM: one route of a GSI to each controller, or one MSI and nothing else. */
static bool add_entry(struct route_table *table, const struct kvm_irq_routing_entry *e)
{
	struct route route = unpack(table->row[e->gsi]);

	if (e->type == KVM_IRQ_ROUTING_MSI) {
		if (goes_somewhere(&route))
			return false;
		route.msi = true;
		route.address = e->u.msi.address_lo | (u64)e->u.msi.address_hi << 32;
		route.data = e->u.msi.data;
	} else {
		if (route.msi || route.pin[e->u.irqchip.irqchip] != ROUTE_NO_PIN)
			return false;
		route.pin[e->u.irqchip.irqchip] = e->u.irqchip.pin;
		table->gsi_of[e->u.irqchip.irqchip][e->u.irqchip.pin] = e->gsi;
	}
	pack(&route, table->row[e->gsi]);
	return true;
}

void route_init(struct route_table *table)
{
	table->sequence = 0;
	for (u32 i = 0; i < ROUTE_MAX_GSIS; i++)
		pack(&nowhere, table->row[i]);
	for (u32 i = 0; i < ROUTE_CHIPS; i++)
		for (u32 pin = 0; pin < ROUTE_MAX_PINS; pin++)
			table->gsi_of[i][pin] = -1;
}

static void publish(struct route_table *table, const struct route_table *new)
{
	u32 seq = table->sequence;

	__atomic_store_n(&table->sequence, seq + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (u32 i = 0; i < ROUTE_MAX_GSIS; i++)
		for (u32 k = 0; k < 2; k++)
			__atomic_store_n(&table->row[i][k], new->row[i][k], __ATOMIC_RELAXED);
	for (u32 i = 0; i < ROUTE_CHIPS; i++)
		for (u32 pin = 0; pin < ROUTE_MAX_PINS; pin++)
			__atomic_store_n(&table->gsi_of[i][pin], new->gsi_of[i][pin],
					 __ATOMIC_RELAXED);
	__atomic_store_n(&table->sequence, seq + 2, __ATOMIC_RELEASE);
}

int route_set(struct route_table *table, const struct kvm_irq_routing_entry *entries, u32 n)
{
	struct route_table *new = malloc(sizeof(*new));
	bool sane = true;

	if (!new)
		return -ENOMEM;
	route_init(new);
	for (u32 i = 0; i < n && sane; i++)
		sane = add_entry(new, &entries[i]);
	if (sane)
		publish(table, new);
	free(new);
	return sane ? 0 : -EINVAL;
}

int route_set_default(struct route_table *table)
{
	struct kvm_irq_routing_entry entries[DEFAULT_ROUTES] = { 0 };

	for (u32 i = 0; i < DEFAULT_ROUTES; i++) {
		struct kvm_irq_routing_entry *e = &entries[i];

		e->type = KVM_IRQ_ROUTING_IRQCHIP;
		e->gsi = i < 16 ? i : i - 16;
		e->u.irqchip.irqchip = i < 16 ? i / 8 : KVM_IRQCHIP_IOAPIC;
		e->u.irqchip.pin = i < 16 ? i % 8 : i - 16;
	}
	return route_set(table, entries, DEFAULT_ROUTES);
}

/* Even, and with what follows not read before it. A writer that takes long may wait for this very
 * processor: it gets it by a nap, whatever its priority. */
static u32 read_begin(const struct route_table *table)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };
	u32 seq, spins = 0;

	while ((seq = __atomic_load_n(&table->sequence, __ATOMIC_ACQUIRE)) & 1)
		if (++spins % SPINS == 0)
			nanosleep(&nap, NULL);
	return seq;
}

static bool read_again(const struct route_table *table, u32 seq)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&table->sequence, __ATOMIC_RELAXED) != seq;
}

struct route route_lookup(const struct route_table *table, u32 gsi)
{
	u64 row[2];
	u32 seq;

	if (gsi >= ROUTE_MAX_GSIS)
		return nowhere;
	do {
		seq = read_begin(table);
		row[0] = __atomic_load_n(&table->row[gsi][0], __ATOMIC_RELAXED);
		row[1] = __atomic_load_n(&table->row[gsi][1], __ATOMIC_RELAXED);
	} while (read_again(table, seq));
	return unpack(row);
}

int route_gsi_of(const struct route_table *table, u32 chip, u32 pin)
{
	u32 seq;
	int gsi;

	do {
		seq = read_begin(table);
		gsi = __atomic_load_n(&table->gsi_of[chip][pin], __ATOMIC_RELAXED);
	} while (read_again(table, seq));
	return gsi;
}
