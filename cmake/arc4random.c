/* SPDX-License-Identifier: Apache-2.0
 *
 * libstdc++'s random_device imports arc4random, which only glibc 2.36 and later have; the library
 * has to load on 2.35. Linked into libattnloom.so and not exported. Thread-safe.
 */
#include <stdint.h>
#include <sys/random.h>

uint32_t arc4random(void);

uint32_t arc4random(void) {
  uint32_t value = 0;
  /* At most 256 bytes are never cut short; -1 is EINTR before the kernel's pool is ready, so asking
   * again ends. */
  while (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) {
  }
  return value;
}
