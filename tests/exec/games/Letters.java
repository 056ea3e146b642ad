// SPDX-License-Identifier: MIT
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** Words of random letters, counted in a map, and patterns in them; argument: letters. */
public class Letters {
	public static void main(String[] arguments) {
		int size = Integer.parseInt(arguments[0]), seed = 42;
		StringBuilder letters = new StringBuilder();
		for (int i = 0; i < size; i++) {
			seed = (seed * 3877 + 29573) % 139968;
			letters.append("acgt".charAt((int) (seed / 139968.0 * 4)));
		}
		String text = letters.toString();
		for (int length : new int[] { 1, 2, 6, 12 }) {
			Map<String, Integer> found = new HashMap<>();
			for (int i = 0; i + length <= size; i++)
				found.merge(text.substring(i, i + length), 1, Integer::sum);
			System.out.println(length + " " + found.size() + " " + found.entrySet().stream()
				.sorted(Map.Entry.<String, Integer>comparingByValue(Comparator.reverseOrder()).thenComparing(Map.Entry.comparingByKey()))
				.limit(3).map(Object::toString).collect(Collectors.joining(" ")));
		}
		for (String pattern : new String[] { "agg?t+a", "(ac|gt){3}", "[cgt]gggtaaa|tttaccc[acg]" }) {
			Pattern compiled = Pattern.compile(pattern);
			System.out.println(pattern + " " + compiled.matcher(text).results().count() + " " + compiled.matcher(text).replaceAll("-").length());
		}
	}
}
