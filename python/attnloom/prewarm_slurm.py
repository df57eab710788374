# SPDX-License-Identifier: Apache-2.0
"""A prewarm as a Slurm job array: a task a shard, put back in the queue when its node fails."""

import shlex
import subprocess
import sys

from attnloom.prewarm_shards import ENVIRONMENT, NODE, READY, Work

# No line of a JSON text can be this one.
END = "END_OF_ATTNLOOM_MANIFEST"


def quoted(argument: str) -> str:
    """For the shell of the node, which puts its own name in."""
    parts = [shlex.quote(part) if part else "" for part in argument.split(NODE)]
    return '"$(hostname)"'.join(parts) or "''"


def script(work: Work, shards: int) -> str:
    words = [quoted(argument) for argument in work.arguments("", NODE)]
    words[words.index("--shard") + 1] = f'"$SLURM_ARRAY_TASK_ID/{shards}"'
    line = " ".join(words)
    return f"""#!/bin/sh
#SBATCH --job-name=attnloom-prewarm
#SBATCH --array=0-{shards - 1}
#SBATCH --cpus-per-task={work.cpus}
#SBATCH --requeue
exec {line} <<'{END}'
{work.manifest}
{END}
"""


def run(work: Work, shards: int, options: list[str], submit: bool) -> int:
    """Prints the script, or hands it to sbatch and prints what that says."""
    text = script(work, shards)
    if not submit:
        print(text, end="")
        return READY
    try:
        done = subprocess.run(["sbatch", *options], input=text, text=True, check=False)
    except OSError as error:
        print(f"attnloom.prewarm: sbatch: {error}", file=sys.stderr)
        return ENVIRONMENT
    return READY if done.returncode == 0 else ENVIRONMENT
