// SPDX-License-Identifier: MIT
// Words of random letters, counted in a map, and patterns in them; argument: letters.
const size = Number(process.argv[2]);
let seed = 42, text = "";
for (let i = 0; i < size; i++) {
	seed = (seed * 3877 + 29573) % 139968;
	text += "acgt"[Math.floor(seed / 139968 * 4)];
}
for (const length of [1, 2, 6, 12]) {
	const found = new Map();
	for (let i = 0; i + length <= size; i++) {
		const word = text.substring(i, i + length);
		found.set(word, (found.get(word) || 0) + 1);
	}
	const most = [...found].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, 3);
	console.log(length, found.size, most.join(" "));
}
for (const pattern of [/agg?t+a/g, /(ac|gt){3}/g, /[cgt]gggtaaa|tttaccc[acg]/g])
	console.log(String(pattern), (text.match(pattern) || []).length, text.replace(pattern, "-").length);
