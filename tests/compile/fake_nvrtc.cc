// SPDX-License-Identifier: Apache-2.0
// Answers like libnvrtc, the program's text being the order: "empty", "no ptx", "out of memory",
// "internal", "endless" (until the flow callback stops it), or anything else for a cubin that is
// not one. Counts programs that were not destroyed.
#include <cstring>
#include <string>

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace {

struct Program {
  std::string text;
  std::string cubin;
  std::string ptx;
  std::string log;
  int (*flow)(void*, void*) = nullptr;
  void* flow_payload = nullptr;
};

int alive = 0;

int copy(const std::string& text, char* out) {
  std::memcpy(out, text.data(), text.size());
  return 0;
}

int tell(const std::string& text, std::size_t* bytes) {
  *bytes = text.size();
  return 0;
}

}  // namespace

FAKE_API int fake_nvrtc_alive() {
  return alive;
}

FAKE_API int nvrtcVersion(int* major, int* minor) {
  *major = FAKE_MAJOR;
  *minor = FAKE_MINOR;
  return 0;
}

FAKE_API const char* nvrtcGetErrorString(int) {
  return "FAKE_ERROR";
}

FAKE_API int nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return 0;
}

FAKE_API int nvrtcGetSupportedArchs(int* archs) {
  archs[0] = 90;
  return 0;
}

FAKE_API int nvrtcCreateProgram(Program** program, const char* text, const char*, int,
                                const char* const*, const char* const*) {
  ++alive;
  *program = new Program{text, "not an ELF", "ptx", "a log", nullptr, nullptr};
  return 0;
}

FAKE_API int nvrtcDestroyProgram(Program** program) {
  --alive;
  delete *program;
  *program = nullptr;
  return 0;
}

FAKE_API int nvrtcSetFlowCallback(Program* program, int (*flow)(void*, void*), void* payload) {
  program->flow = flow;
  program->flow_payload = payload;
  return 0;
}

FAKE_API int nvrtcCompileProgram(Program* program, int, const char* const*) {
  if (program->text == "out of memory") return 1;
  if (program->text == "internal") return 11;
  if (program->text == "endless") {
    while (program->flow(program->flow_payload, nullptr) == 0) {
    }
    return 16;
  }
  if (program->text == "empty") program->cubin.clear();
  if (program->text == "no ptx") program->ptx = std::string(1, '\0');
  return 0;
}

FAKE_API int nvrtcGetCUBINSize(Program* program, std::size_t* bytes) {
  return tell(program->cubin, bytes);
}
FAKE_API int nvrtcGetCUBIN(Program* program, char* out) {
  return copy(program->cubin, out);
}
FAKE_API int nvrtcGetPTXSize(Program* program, std::size_t* bytes) {
  return tell(program->ptx, bytes);
}
FAKE_API int nvrtcGetPTX(Program* program, char* out) {
  return copy(program->ptx, out);
}
FAKE_API int nvrtcGetProgramLogSize(Program* program, std::size_t* bytes) {
  return tell(program->log, bytes);
}
FAKE_API int nvrtcGetProgramLog(Program* program, char* out) {
  return copy(program->log, out);
}
