# SPDX-License-Identifier: Apache-2.0
# Everything comes from the distribution's packages (tools/setup installs them); nothing is downloaded here.
find_package(Threads REQUIRED)
find_package(nlohmann_json 3.9 REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
set(OPENSSL_USE_STATIC_LIBS ON)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_library(ATTNLOOM_ZSTD_STATIC libzstd.a REQUIRED)
find_path(ATTNLOOM_MUSTACHE_DIR kainjow/mustache.hpp REQUIRED)
find_path(ATTNLOOM_CURL_DIR curl/curl.h REQUIRED)
if(ATTNLOOM_TESTS)
  find_package(Catch2 REQUIRED)
endif()

# spdlog's own header-only target pulls in libfmt.so on Debian; the library may need libc, libm and the loader only.
add_library(attnloom_spdlog INTERFACE)
target_include_directories(attnloom_spdlog SYSTEM INTERFACE
  $<TARGET_PROPERTY:spdlog::spdlog_header_only,INTERFACE_INCLUDE_DIRECTORIES>
  $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
target_compile_definitions(attnloom_spdlog INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY=1)
