# SPDX-License-Identifier: Apache-2.0
# attnloom_embed(TARGET OUTPUT.cc FILES...): compiles kernel_templates/ files into TARGET as the table that
# src/render/embedded.h declares. Comments and blank lines of .cuh files are stripped, so that they enter no key.
# OUTPUT is relative to the current binary folder, FILES are relative to kernel_templates/ or absolute.
find_package(Python3 3.10 REQUIRED COMPONENTS Interpreter)

function(attnloom_embed target output)
  set(root ${PROJECT_SOURCE_DIR}/kernel_templates)
  set(tools ${PROJECT_SOURCE_DIR}/tools)
  cmake_path(ABSOLUTE_PATH output BASE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  set(files)
  foreach(file IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${root})
    list(APPEND files ${file})
  endforeach()
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -E env PYTHONDONTWRITEBYTECODE=1
            ${Python3_EXECUTABLE} ${tools}/embed_sources.py ${root} ${output} ${files}
    DEPENDS ${files} ${tools}/embed_sources.py ${tools}/strip_source.py
    COMMENT "Embedding kernel_templates"
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
