// SPDX-License-Identifier: MIT
/** Binary trees that several threads make, count and forget; argument: depth. */
public class Trees {
	private final Trees left, right;

	private Trees(int depth) {
		left = depth == 0 ? null : new Trees(depth - 1);
		right = depth == 0 ? null : new Trees(depth - 1);
	}

	private int count() {
		return left == null ? 1 : 1 + left.count() + right.count();
	}

	public static void main(String[] arguments) {
		int depth = Integer.parseInt(arguments[0]);
		Trees lasting = new Trees(depth);
		for (int level = 4; level <= depth; level += 4) {
			int trees = 1 << (depth - level + 4), size = level;
			long sum = java.util.stream.IntStream.range(0, trees).parallel().mapToLong(i -> new Trees(size).count()).sum();
			System.out.println(trees + " " + level + " " + sum);
		}
		System.out.println(lasting.count());
	}
}
