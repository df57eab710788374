// SPDX-License-Identifier: Apache-2.0
// A user's C++ program: the header-only interface compiles under strict warnings and links to the C
// symbols alone.
#include <attnloom/attnloom.hpp>
#include <attnloom/block_sparse.hpp>
#include <iostream>

int main() {
  std::cout << "attnloom " << alm_version() << "\n";
  return alm_abi_version() == ALM_ABI_VERSION ? 0 : 1;
}
