// SPDX-License-Identifier: MIT
/** All permutations of n numbers: how many times the first of them can reverse a beginning, and a checksum. */
public class Fannkuch {
	private static int flips(int[] order) {
		int[] work = order.clone();
		int count = 0;
		for (int first = work[0]; first != 0; first = work[0], count++)
			for (int low = 0, high = first; low < high; low++, high--) {
				int kept = work[low];
				work[low] = work[high];
				work[high] = kept;
			}
		return count;
	}

	public static void main(String[] arguments) {
		int n = Integer.parseInt(arguments[0]), most = 0, sum = 0, sign = 1;
		int[] order = java.util.stream.IntStream.range(0, n).toArray(), turns = new int[n];
		for (int place = 0; place < n;) {
			if (place == 0) {
				int count = flips(order);
				most = Math.max(most, count);
				sum += sign * count;
				sign = -sign;
				place = 1;
			}
			// The next permutation: of the first place + 1 numbers, the first becomes the last.
			int first = order[0];
			System.arraycopy(order, 1, order, 0, place);
			order[place] = first;
			if (++turns[place] <= place)
				place = 0;
			else
				turns[place++] = 0;
		}
		System.out.println(sum + " " + most);
	}
}
