// SPDX-License-Identifier: Apache-2.0
// Calls of operator new in this program, by every thread.
#pragma once

long allocations_so_far();
