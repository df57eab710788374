// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "sim/decode/builder.h"
#include "sim/program.h"

namespace attnloom::sim {
namespace {

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

// NVRTC puts the working directory before the names of #line and of in-memory headers; a place must
// not depend on it.
std::string short_path(std::string_view path) {
  std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return std::string(path);
  std::size_t folder = path.rfind('/', slash - 1);
  std::string_view parent = path.substr(folder == std::string_view::npos ? 0 : folder + 1);
  return std::string(parent.starts_with("loom/") ? parent : path.substr(slash + 1));
}

std::string place_text(const PtxModule& ptx, std::uint32_t file, std::uint32_t line) {
  auto it = ptx.files.find(file);
  if (it == ptx.files.end() || line == 0) return {};
  return short_path(it->second) + ":" + std::to_string(line);
}

// Module variables, and for each symbol its variable (kNone for others).
Status collect_variables(const PtxModule& ptx, Module::State& state,
                         std::vector<std::uint32_t>& variable_of_symbol) {
  variable_of_symbol.assign(ptx.symbols.size(), kNone);
  for (std::size_t id = 0; id < ptx.symbols.size(); ++id) {
    const PtxSymbol& s = ptx.symbols[id];
    if (s.space != Space::kGlobal && s.space != Space::kConst) continue;
    variable_of_symbol[id] = static_cast<std::uint32_t>(state.variables.size());
    Variable v;
    v.name = s.name;
    v.is_const = s.space == Space::kConst;
    v.align_bytes = s.align_bytes;
    v.bytes = s.bytes;
    v.initial = s.initial;
    state.variables.push_back(std::move(v));
  }
  for (std::size_t id = 0; id < ptx.symbols.size(); ++id) {
    if (variable_of_symbol[id] == kNone) continue;
    for (const auto& [offset, name] : ptx.symbols[id].pointers) {
      std::uint32_t target = 0;
      while (target < state.variables.size() && state.variables[target].name != name) ++target;
      if (target == state.variables.size()) {
        return make_error(Code::kLoadFailed, "",
                          "variable " + std::string(ptx.symbols[id].name) +
                              " is initialised with the address of '" + std::string(name) +
                              "', which is no variable");
      }
      state.variables[variable_of_symbol[id]].pointers.emplace_back(offset, target);
    }
  }
  return ok_status();
}

}  // namespace

const Kernel* Module::State::find(std::string_view name) const {
  for (const Kernel& k : kernels) {
    if (k.name == name) return &k;
  }
  return nullptr;
}

Module::Module(std::unique_ptr<State> state) : state_(std::move(state)) {}
Module::~Module() = default;
bool Module::has_entry(std::string_view name) const {
  return state_->find(name) != nullptr;
}

Result<std::shared_ptr<const Module>> load_module(std::string_view ptx) {
  return load_module_for(ptx, best_isa());
}

Result<std::shared_ptr<const Module>> load_module_for(std::string_view text, Isa isa) {
  ATTNLOOM_TRY(PtxModule ptx, parse_ptx(text));
  auto state = std::make_unique<Module::State>();
  state->text_hash = hash_of(text);
  state->target = ptx.target;
  for (const PtxPlace& p : ptx.places) {
    state->places.push_back(place_text(ptx, p.file, p.line));
    state->callers.push_back(place_text(ptx, p.caller_file, p.caller_line));
  }
  std::vector<std::uint32_t> variable_of_symbol;
  ATTNLOOM_CHECK(collect_variables(ptx, *state, variable_of_symbol));
  for (const PtxFunction& function : ptx.functions) {
    if (!function.is_entry || !function.has_body) continue;
    Builder builder(ptx, isa, variable_of_symbol);
    ATTNLOOM_CHECK(builder.decode_entry(function));
    state->kernels.push_back(builder.finish());
  }
  if (state->kernels.empty()) {
    return make_error(Code::kLoadFailed, "", "the PTX text has no .entry",
                      "Give the text that NVRTC made of a kernel.");
  }
  return std::shared_ptr<const Module>(std::make_shared<Module>(std::move(state)));
}

}  // namespace attnloom::sim
