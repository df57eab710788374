# SPDX-License-Identifier: Apache-2.0
# attnloom_embed(TARGET OUTPUT.cc ROOT HEADER FUNCTION FILES...): compiles files below ROOT into TARGET as the table that
# FUNCTION in HEADER returns. Comments and blank lines of .cuh files are stripped, so that they enter no key.
# OUTPUT is relative to the current binary folder, ROOT to the project; FILES are absolute.
find_package(Python3 3.10 REQUIRED COMPONENTS Interpreter)

function(attnloom_embed target output root header function)
  cmake_path(ABSOLUTE_PATH root BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
  set(tools ${PROJECT_SOURCE_DIR}/tools)
  cmake_path(ABSOLUTE_PATH output BASE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -E env PYTHONDONTWRITEBYTECODE=1
            ${Python3_EXECUTABLE} ${tools}/embed_sources.py ${root} ${output} ${header} ${function} ${ARGN}
    DEPENDS ${ARGN} ${tools}/embed_sources.py ${tools}/strip_source.py
    COMMENT "Embedding ${root}"
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
