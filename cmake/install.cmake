# SPDX-License-Identifier: Apache-2.0
# libattnloom.so and what is installed: the library, its headers, the command-line tool, the CMake package `Attnloom`
# and attnloom.pc. Include it after src/ and tools/ and before tests/, which test what it defines.
if(ATTNLOOM_SANITIZE)
  return()  # nothing to install: such a library needs the sanitizer's runtime in the program that loads it
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(ATTNLOOM_ABI_MAJOR 0)  # ALM_ABI_VERSION in attnloom.h; raised when a public symbol or struct field goes away
set(version_script ${PROJECT_SOURCE_DIR}/cmake/attnloom.map)

add_library(attnloom_shared SHARED ${PROJECT_SOURCE_DIR}/cmake/arc4random.c)
add_library(Attnloom::attnloom ALIAS attnloom_shared)
set_target_properties(attnloom_shared PROPERTIES
  OUTPUT_NAME attnloom
  EXPORT_NAME attnloom
  VERSION ${PROJECT_VERSION}
  SOVERSION ${ATTNLOOM_ABI_MAJOR}
  LINKER_LANGUAGE CXX
  LINK_DEPENDS ${version_script})
# Whole: nothing inside the library calls the C functions, so a plain archive would leave them out.
target_link_libraries(attnloom_shared PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,attnloom_abi>)
target_link_options(attnloom_shared PRIVATE
  -static-libstdc++ -static-libgcc
  LINKER:--version-script=${version_script} LINKER:--no-undefined LINKER:--as-needed
  LINKER:-z,relro LINKER:-z,now)
target_include_directories(attnloom_shared INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

install(TARGETS attnloom_shared EXPORT attnloom
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS attnloom_cli attnloom_cc RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/attnloom DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The package has no dependencies to find, so its targets file is its config file.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Attnloom)
install(EXPORT attnloom FILE AttnloomConfig.cmake NAMESPACE Attnloom:: DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/AttnloomConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/AttnloomConfigVersion.cmake DESTINATION ${package_dir})

# Relative to the .pc file: an installed tree may be moved.
file(RELATIVE_PATH ATTNLOOM_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${PROJECT_SOURCE_DIR}/cmake/attnloom.pc.in ${PROJECT_BINARY_DIR}/attnloom.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/attnloom.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
