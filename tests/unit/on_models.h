/* SPDX-License-Identifier: MIT */
/*
 * Unit tests that run once for each CPU model. The test that includes this has on_model(), which
 * makes what is tested for the model that *state names, and done(), which takes it away.
 */
#ifndef UNIT_ON_MODELS_H
#define UNIT_ON_MODELS_H

#define ON(name, on) { #name " (" on ")", name, on_model, done, on }
#define TEST(name)                                                                               \
	ON(name, "skylake"), ON(name, "icelake"), ON(name, "sapphirerapids"), ON(name, "milan"), \
		ON(name, "genoa")

#endif
