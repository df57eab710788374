# SPDX-License-Identifier: Apache-2.0
"""Attnloom: attention kernels from JSON specs."""
