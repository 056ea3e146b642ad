// SPDX-License-Identifier: MIT
/*
 * SQLite, Debian's library, on a database in memory: insert, index, join, group, sort, update,
 * delete. The checksum is of every column of every row that the queries return.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "bench/work/work.h"

#define ROWS 600

static const char *const before[] = {
	"create table person (id integer primary key, name text, town integer, born integer)",
	"create table town (id integer primary key, name text)",
	"begin",
};

static const char *const after[] = {
	"commit",
	"create index person_town on person (town, born)",
	"select town.name, count(*), min(born), max(born), avg(born) from person join town on "
	"town.id = person.town group by town.id order by 2 desc, 1",
	"select name, born from person where name like '%17%' order by born, name",
	"update person set born = born + 1 where town % 3 = 1",
	"delete from person where born % 7 = 0",
	"select count(*), sum(born), group_concat(substr(name, 1, 2)) from person where born > 1950",
	"select a.name, b.name from person a, person b where a.town = b.town and a.born = b.born and "
	"a.id < b.id order by a.id, b.id limit 50",
};

static void check(sqlite3 *db, int result)
{
	if (result == SQLITE_OK || result == SQLITE_DONE || result == SQLITE_ROW)
		return;
	fprintf(stderr, "sqlite: %s\n", sqlite3_errmsg(db));
	die("sqlite");
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *text)
{
	sqlite3_stmt *statement;

	check(db, sqlite3_prepare_v2(db, text, -1, &statement, NULL));
	return statement;
}

static uint64_t run(sqlite3 *db, uint64_t sum, const char *text)
{
	sqlite3_stmt *statement = prepare(db, text);
	int result;

	while ((result = sqlite3_step(statement)) == SQLITE_ROW)
		for (int i = 0; i < sqlite3_column_count(statement); i++) {
			const unsigned char *column = sqlite3_column_text(statement, i);

			sum = column ? hash(sum, column, strlen((const char *)column)) : sum + 1;
		}
	check(db, result);
	check(db, sqlite3_finalize(statement));
	return sum;
}

static void insert(sqlite3 *db)
{
	sqlite3_stmt *person = prepare(db, "insert into person values (?, ?, ?, ?)");
	sqlite3_stmt *town = prepare(db, "insert into town values (?, ?)");
	uint64_t seed = 5;
	char name[32];

	for (int i = 0; i < ROWS; i++) {
		snprintf(name, sizeof(name), "%c%c%u", 'A' + i % 26, 'a' + i % 17,
			 random_next(&seed) % 100000);
		sqlite3_bind_int(person, 1, i);
		sqlite3_bind_text(person, 2, name, -1, SQLITE_TRANSIENT);
		sqlite3_bind_int(person, 3, (int)(random_next(&seed) % 20));
		sqlite3_bind_int(person, 4, 1900 + (int)(random_next(&seed) % 100));
		check(db, sqlite3_step(person));
		check(db, sqlite3_reset(person));
	}
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "Town %d", i);
		sqlite3_bind_int(town, 1, i);
		sqlite3_bind_text(town, 2, name, -1, SQLITE_TRANSIENT);
		check(db, sqlite3_step(town));
		check(db, sqlite3_reset(town));
	}
	check(db, sqlite3_finalize(person));
	check(db, sqlite3_finalize(town));
}

uint64_t sqlite_unit(void)
{
	uint64_t sum = HASH_START;
	sqlite3 *db;

	check(NULL, sqlite3_open(":memory:", &db));
	for (size_t i = 0; i < sizeof(before) / sizeof(*before); i++)
		sum = run(db, sum, before[i]);
	insert(db);
	for (size_t i = 0; i < sizeof(after) / sizeof(*after); i++)
		sum = run(db, sum, after[i]);
	check(db, sqlite3_close(db));
	return sum;
}
