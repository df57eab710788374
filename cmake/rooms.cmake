# SPDX-License-Identifier: Apache-2.0
# A room is a folder under src/ and a static library attnloom_<room>. Its files are listed by hand.
add_library(attnloom_flags INTERFACE)
target_compile_options(attnloom_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers
                                                -ffp-contract=off)
# g++ 12 reports std::string's own moves, inlined from a precompiled header.
target_compile_options(attnloom_flags INTERFACE
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow>)
if(ATTNLOOM_WERROR)
  target_compile_options(attnloom_flags INTERFACE -Werror)
endif()
if(ATTNLOOM_SANITIZE)
  # g++ 12 sees uninitialised values in its own <regex> once it is instrumented.
  target_compile_options(attnloom_flags INTERFACE -fsanitize=${ATTNLOOM_SANITIZE} -fno-omit-frame-pointer
                                                  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(attnloom_flags INTERFACE -fsanitize=${ATTNLOOM_SANITIZE})
  target_compile_definitions(attnloom_flags INTERFACE ATTNLOOM_SANITIZED)  # g++ and clang say so in different words
  # The driver's functions are called through types of our own, which no library that is opened at run time shares.
  target_compile_options(attnloom_flags INTERFACE $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
endif()

# nlohmann/json.hpp costs 2 s a file, so base compiles it once. Who shares it must be instrumented alike.
function(attnloom_json_header target)
  if(target STREQUAL "attnloom_base")
    target_precompile_headers(attnloom_base PRIVATE <nlohmann/json.hpp>)
  else()
    target_precompile_headers(${target} REUSE_FROM attnloom_base)
  endif()
  if(ATTNLOOM_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# With CMAKE_UNITY_BUILD (what the presets of users and CI set: half the time) files are compiled several at once. These
# stand alone, since they share names of an anonymous namespace with others of their target.
function(attnloom_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# attnloom_room(NAME SOURCES a.cc ... DEPENDS base spec ... [LIBRARIES imported::targets ...])
function(attnloom_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  add_library(attnloom_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(attnloom_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(attnloom_${name} PUBLIC attnloom_flags ${ROOM_LIBRARIES})
  foreach(room ${ROOM_DEPENDS})
    target_link_libraries(attnloom_${name} PUBLIC attnloom_${room})
  endforeach()
  if(name MATCHES "^(sim|reference)$")
    # Neither sees nlohmann/json.hpp nor is fuzzed, and the sanitizer builds optimise nothing else.
    target_compile_options(attnloom_${name} PRIVATE -O2)
    return()
  endif()
  attnloom_json_header(attnloom_${name})
endfunction()

# attnloom_test(NAME SOURCES a_test.cc ... LINK targets ... [PARTS tags ...]): one Catch2 program, one ctest entry
# "NAME" or, with parts, one entry "NAME_tag" for the cases of each tag, so that they can run side by side.
function(attnloom_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;LINK;PARTS" ${ARGN})
  add_executable(${name}_test ${TEST_SOURCES})
  target_link_libraries(${name}_test PRIVATE attnloom_catch_main ${TEST_LINK})
  if(NOT TEST_SOURCES MATCHES "\\.c(;|$)")  # a program with C in it cannot share a C++ header
    target_precompile_headers(${name}_test REUSE_FROM attnloom_catch_main)
  endif()
  if(NOT TEST_PARTS)
    add_test(NAME ${name} COMMAND ${name}_test)
  endif()
  foreach(part IN LISTS TEST_PARTS)
    add_test(NAME ${name}_${part} COMMAND ${name}_test "[${part}]")
  endforeach()
endfunction()
