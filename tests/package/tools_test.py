#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the scripts in tools/: each check finds a planted fault and is silent about the correct text beside it."""

import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.join(HERE, "..", "..", "tools")
sys.path[:0] = [TOOLS, HERE]

import check_kernel_text  # noqa: E402
import check_layers  # noqa: E402
import check_library  # noqa: E402
import embed_sources  # noqa: E402
import show_runs  # noqa: E402
import strip_source  # noqa: E402
from scratch_tree import TreeTest  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class LayersTest(TreeTest):
    def problems(self, path, text):
        self.write(path, text)
        return check_layers.check_tree(self.root)

    def test_include_up_the_arrow(self):
        text = SPDX + '#include <vector>\n#include "base/status.h"\n#include "engine/engine.h"\n'
        self.assertEqual(
            self.problems("src/spec/a.h", text),
            ["src/spec/a.h:4: spec may not include engine/engine.h"],
        )

    def test_one_header_of_a_room(self):
        text = SPDX + '#include "plan/workload.h"\n#include "plan/schedule.h"\n'
        self.assertEqual(
            self.problems("src/reference/a.cc", text),
            ["src/reference/a.cc:3: reference may not include plan/schedule.h"],
        )

    def test_only_plan_and_runtime_cross_the_wall(self):
        text = SPDX + '#include "kernel_templates/loom/plan.cuh"\n'
        self.assertEqual(self.problems("src/plan/a.h", text), [])
        self.assertEqual(len(self.problems("src/cache/a.h", text)), 1)

    def test_engine_does_not_see_reference(self):
        self.assertEqual(
            len(self.problems("src/engine/a.cc", SPDX + "#  include <reference/attention.h>\n")), 1
        )

    def test_include_of_the_same_folder_without_a_room(self):
        self.assertIn(
            "not rooted at src/", self.problems("src/spec/a.cc", SPDX + '#include "spec.h"\n')[0]
        )

    def test_a_new_room_needs_a_row(self):
        self.assertIn("no room of src/", self.problems("src/attic/a.cc", SPDX)[0])

    def test_include_in_a_comment(self):
        self.assertEqual(
            self.problems("src/base/a.h", SPDX + '/*\n#include "engine/engine.h"\n*/\n'), []
        )

    def test_tests_see_every_room_and_users_only_the_interface(self):
        self.assertEqual(
            self.problems("tests/a/a_test.cc", SPDX + '#include "engine/engine.h"\n'), []
        )
        self.assertEqual(
            len(self.problems("examples/a.cc", SPDX + '#include "engine/engine.h"\n')), 1
        )

    def test_file_length(self):
        self.assertEqual(self.problems("src/base/a.h", SPDX + "int a;\n" * 399), [])
        self.assertIn("401 lines", self.problems("src/base/a.h", SPDX + "int a;\n" * 400)[0])

    def function(self, lines):
        return (
            SPDX
            + "namespace a {\nstruct S {\n  S() : x{1}, y(2) {}\n  int x, y;\n};\nconst int kRows[] = {\n"
            + "  1,\n" * 80
            + "};\ntemplate <class T>\nint f(T t) {\n"
            + "  if (t) {  // }\n  }\n"
            + "  g('}', \"}\");\n" * (lines - 4)
            + "}\n}\n"
        )

    def test_function_length(self):
        self.assertEqual(self.problems("src/base/a.cc", self.function(60)), [])
        self.assertIn(
            "base/a.cc:90: a function of 61 lines",
            self.problems("src/base/a.cc", self.function(61))[0],
        )
        self.write("src/base/a.cc", SPDX)
        self.assertEqual(self.problems("kernel_templates/loom/a.cuh", self.function(61)), [])

    def test_licence_line(self):
        self.assertIn("a.py:1: no line", self.problems("tools/a.py", "print()\n")[0])
        self.assertEqual(self.problems("tools/a.py", "#!/usr/bin/env python3\n#" + SPDX[2:]), [])

    def test_path_of_one_machine(self):
        found = "/ho" + "me/someone/x"
        self.assertEqual(
            self.problems("README.md", f"a\nsee {found}\n"),
            [f"README.md:2: a path of one machine: {found[:-2]}"],
        )
        self.assertEqual(
            self.problems("README.md", "/usr/local/cuda, https://x.org/home/a, ~/work/b\n"), []
        )


class KernelTextTest(TreeTest):
    def problems(self, name, text):
        self.write("kernel_templates/loom/ops.cuh", "")
        self.write("kernel_templates/" + name, text)
        return [problem.partition(":")[2] for problem in check_kernel_text.check_tree(self.root)]

    def test_asm(self):
        text = 'void f() {\n  asm volatile("bar.sync 0;");\n}\n'
        self.assertEqual(self.problems("loom/ops_sm80.cuh", text), [])
        self.assertEqual(self.problems("loom/copy.cuh", text), ["2: asm outside loom/ops_*.cuh"])
        self.assertEqual(
            self.problems("loom/copy.cuh", "#define F \\\n  asm\n"), ["1: asm in a macro"]
        )
        self.assertEqual(self.problems("loom/copy.cuh", '// no asm\nconst char* a = "asm";\n'), [])

    def test_includes(self):
        self.assertEqual(
            self.problems("a.mustache", '#include "loom/ops.cuh"\n#include <loom/{{{name}}}>\n'), []
        )
        self.assertEqual(
            self.problems("a.mustache", "\n#include <cuda_fp16.h>\n"),
            ["2: includes cuda_fp16.h, which is not in kernel_templates/"],
        )

    def test_static_only_inside_types(self):
        text = "struct S {\n  static constexpr int kRows = 1;\n  static int f() { return 1; }\n};\nstatic_assert(true);\n"
        self.assertEqual(self.problems("loom/a.cuh", text), [])
        self.assertEqual(
            self.problems("loom/a.cuh", "namespace loom {\nstatic int x;\n}\n"),
            ["2: static outside a type"],
        )
        self.assertEqual(
            self.problems("loom/a.cuh", "void f() {\n  static int x;\n}\n"),
            ["2: static outside a type"],
        )

    def test_names_that_vary(self):
        self.assertEqual(
            self.problems("loom/a.cuh", "namespace {\nint x;\n}\n"), ["1: an anonymous namespace"]
        )
        self.assertEqual(
            self.problems("loom/a.cuh", "#define WHERE __FILE__\n"),
            ["1: __FILE__ differs from compile to compile"],
        )

    def test_mustache_comment_with_an_apostrophe(self):
        self.assertEqual(self.problems("a.mustache", "{{! don't }}\nint x = {{{value}}};\n"), [])


class StripTest(unittest.TestCase):
    def check(self, text, want, lines=None):
        got, numbers = strip_source.strip(text)
        self.assertEqual(got, want)
        if lines:
            self.assertEqual(numbers, lines)

    def test_comments_and_blank_lines(self):
        self.check(
            "// a\n\nint a;  // b\n/* c\n\n*/ int d;\n  /* e */ int f;\n",
            "int a;\nint d;\n  int f;\n",
            [3, 6, 7],
        )

    def test_a_comment_separates_tokens_and_adds_nothing(self):
        self.check("int/**/a;\n", "int a;\n")
        self.check("int /* b */ a;\n", "int a;\n")

    def test_literals_are_kept(self):
        for text in (
            'a("//", "/*", "\\"//");\n',
            "b('\"', '\\'', '/');\n",
            "int c = 1'000'000 / 2;\n",
            'auto d = u8R"(//)";\n',
        ):
            self.check(text, text)

    def test_raw_string_over_lines(self):
        text = 'auto a = R"x(1\n\n // two  \n)" )x";  // b\nint c;\n'
        self.check(text, 'auto a = R"x(1\n\n // two  \n)" )x";\nint c;\n', [1, 2, 3, 4, 5])

    def test_identifier_before_a_string_is_no_raw_string(self):
        self.check('fooR"(" // x\n', 'fooR"("\n')

    def test_spliced_lines(self):
        self.check("// a \\\nstill a\nint b;\n", "int b;\n", [3])
        # The comment's line ends the macro: without it `int c;` would belong to it.
        self.check("#define A 1 \\\n// b\nint c;\n", "#define A 1 \\\n\nint c;\n", [1, 2, 3])

    def test_unfinished(self):
        for text in ("int a; /* b\n", 'int a;\n"b\n', "#error don't\n"):
            with self.assertRaises(strip_source.StripError):
                strip_source.strip(text)


class EmbedTest(TreeTest):
    def test_compiled_table(self):
        sharp = self.write("t/loom/a.cuh", '// gone\n\nconst char* s = "\\\\ ??/ é\\t";\n')
        entry = self.write("t/b.mustache", "{{{x}}} // kept\nno end")
        status = embed_sources.main(
            [
                os.path.join(self.root, "t"),
                os.path.join(self.root, "e.cc"),
                "render/embedded.h",
                "embedded_files",
                sharp,
                entry,
            ]
        )
        self.assertEqual(status, 0)
        main = self.write(
            "main.cc",
            """#include <cstdio>
#include <string>
#include "render/embedded.h"
namespace attnloom {
int embedded_source_line(std::string_view name, int line);
}
int main() {
  for (const auto& file : attnloom::embedded_files())
    std::printf("[%s|%s|%d]", std::string(file.name).c_str(), std::string(file.text).c_str(),
                attnloom::embedded_source_line(file.name, 1));
  std::printf("%d %d", attnloom::embedded_source_line("loom/a.cuh", 9), attnloom::embedded_source_line("c", 7));
}
""",
        )
        program = os.path.join(self.root, "main")
        subprocess.run(
            [
                "g++",
                "-std=c++20",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-pedantic",
                "-I",
                os.path.join(TOOLS, "..", "src"),
                main,
                os.path.join(self.root, "e.cc"),
                "-o",
                program,
            ],
            check=True,
        )
        output = subprocess.run([program], check=True, capture_output=True).stdout.decode()
        self.assertEqual(
            output,
            '[b.mustache|{{{x}}} // kept\nno end|1][loom/a.cuh|const char* s = "\\\\ ??/ é\\t";\n|3]9 7',
        )

    def test_a_file_too_long_for_a_literal(self):
        path = self.write("t/a.mustache", "x" * 60_001)
        with self.assertRaises(SystemExit):
            embed_sources.generate(os.path.join(self.root, "t"), [path])


class LibraryTest(TreeTest):
    def build(self, source, *flags):
        path = self.write("a.c", source)
        library = os.path.join(self.root, "libattnloom.so.0.1.0")
        subprocess.run(["gcc", "-shared", "-fPIC", path, "-o", library, *flags], check=True)
        return library

    def problems(self, library):
        header = self.write(
            "a.h", "ALM_API int alm_f(\n    void);\nALM_API const char* alm_g(int a);\n"
        )
        return [
            *check_library.check_dynamic_section(library),
            *check_library.check_exports(library, header),
            *check_library.check_glibc(library),
        ]

    def test_a_good_library(self):
        library = self.build(
            "int alm_f(void) { return 1; }\nint alm_g(int a) { return a; }\n",
            "-Wl,-soname,libattnloom.so.0",
        )
        self.assertEqual(self.problems(library), [])

    def test_every_offence(self):
        source = "int alm_f(void) { return 1; }\nint leaked(void) { return 1; }\n"
        library = self.build(source, "-Wl,--no-as-needed", "-lstdc++", "-Wl,-rpath,/opt/x")
        self.assertEqual(
            self.problems(library),
            [
                "needs libstdc++.so.6",
                "soname is [], not libattnloom.so.0",
                "has RUNPATH",
                "exports leaked, which a.h does not declare",
                "does not export alm_g",
            ],
        )

    @unittest.skipIf(
        check_library.glibc_of_machine() < (2, 36), "this glibc has nothing newer than 2.35"
    )
    def test_newer_glibc(self):
        library = self.build(
            "unsigned arc4random(void);\nunsigned alm_f(void) { return arc4random(); }\n"
        )
        self.assertIn("needs arc4random@GLIBC_2.36, newer than GLIBC_2.35", self.problems(library))


class ShowRunsTest(TreeTest):
    def program(self, output, status):
        path = self.write("attnloom", f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {status}\n")
        os.chmod(path, 0o755)
        return path

    def test_a_run(self):
        report = (
            '{"device": "sim:h200", "error": {"reference": {"o": 0.00123, "lse": 1e-7}, "expect": null}, "findings": [],'
            ' "counters": {"instructions": 1234567, "mma": 12}, "kernels": [{"key": "0123456789abcdef", "source": "disk"}]}'
        )
        status, row, text = show_runs.run_case(self.program(report, 0), "cases/decode.json")
        self.assertEqual(status, 0)
        self.assertEqual(
            row,
            (
                "decode",
                "sim:h200",
                "agrees",
                "o 1.2e-03 lse 1.0e-07",
                "0123456789ab",
                "disk",
                "1.2M warp instr., 12 mma",
            ),
        )
        self.assertEqual(text, "")

    def test_a_failure_is_shown_and_returned(self):
        status, row, text = show_runs.run_case(self.program("no NVRTC", 3), "a.json")
        self.assertEqual((status, row[2], text), (3, "no environment", "a: no NVRTC"))


if __name__ == "__main__":
    unittest.main()
