/* SPDX-License-Identifier: Apache-2.0
 *
 * A user's C program: without device, driver or compiler, a spec with a misspelt key is refused by
 * its path.
 */
#include <attnloom/attnloom.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  static const char spec[] = "{\"attnloom\": 1, \"kernel\": \"attention\", \"targt\": \"sm_90a\"}";
  alm_context_options options;
  alm_context* context = NULL;
  alm_kernel* kernel = NULL;
  alm_error* error = NULL;
  int found;

  memset(&options, 0, sizeof options);
  options.struct_bytes = sizeof options;
  options.device = ALM_DEVICE_NONE;
  options.cache_dir = argc > 1 ? argv[1] : NULL;
  if (alm_abi_version() != ALM_ABI_VERSION) return 1;
  if (alm_context_create(&options, &context, &error) != ALM_OK) {
    fprintf(stderr, "%s: %s\n", error->name, error->cause);
    return 2;
  }
  if (alm_kernel_open(context, spec, sizeof spec - 1, &kernel, &error) != ALM_SPEC_INVALID)
    return 3;
  found = strstr(error->path, "targt") != NULL;
  printf("attnloom %s: %s at %s\n", alm_version(), error->name, error->path);
  alm_error_free(error);
  alm_context_destroy(context);
  return found ? 0 : 4;
}
