// SPDX-License-Identifier: Apache-2.0
#include "engine/settings.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/temp_directory.h"
#include "engine/setup.h"

namespace attnloom {
namespace {

struct Places {
  TempDirectory root;
  std::unique_ptr<FileSystem> files = make_real_file_system();
  std::string by_option = root / "option";
  std::string by_variable = root / "variable";
  std::string home = root / "home";

  Environment environment() const {
    return {
        {{"ATTNLOOM_CACHE_DIR", by_variable}, {"HOME", home}, {"XDG_RUNTIME_DIR", root / "run"}}};
  }
};

// B131: option, variable, default, in this order.
TEST_CASE("the cache root is the option's, else the variable's, else the default") {
  Places places;
  SettingOptions options;
  options.cache_dir = places.by_option;
  Settings settings = resolve_settings(options, places.environment(), *places.files).value();
  CHECK(settings.cache_root.value == places.by_option);
  CHECK(settings.cache_root.origin == "option cache_dir");
  settings = resolve_settings({}, places.environment(), *places.files).value();
  CHECK(settings.cache_root.value == places.by_variable);
  CHECK(settings.cache_root.origin == "ATTNLOOM_CACHE_DIR");
  settings = resolve_settings({}, {{{"HOME", places.home}}}, *places.files).value();
  CHECK(settings.cache_root.value == places.home + "/.cache/attnloom");
  CHECK(settings.cache_root.origin == "HOME");
  settings =
      resolve_settings({}, {{{"HOME", places.home}, {"XDG_CACHE_HOME", "/x"}}}, *places.files)
          .value();
  CHECK(settings.cache_root.value == "/x/attnloom");
  CHECK(settings.cache_root.origin == "XDG_CACHE_HOME");
  settings =
      resolve_settings({}, {{{"HOME", places.home}, {"XDG_CACHE_HOME", "relative"}}}, *places.files)
          .value();
  CHECK(settings.cache_root.origin == "HOME");
  settings = resolve_settings({}, {}, *places.files).value();
  CHECK(settings.cache_root.value.empty());
  settings = resolve_settings({}, {{{"HOME", "relative"}}}, *places.files).value();
  CHECK(settings.cache_root.value.empty());
  CHECK(settings.cache_root.origin == "no absolute XDG_CACHE_HOME or HOME");
}

TEST_CASE("who only looks makes no cache that is named, and refuses what is no directory") {
  Places places;
  SettingOptions options;
  options.cache_dir = places.root / "absent";
  options.look_only = true;
  CHECK(resolve_settings(options, {}, *places.files).ok());
  CHECK_FALSE(places.files->info(options.cache_dir).exists);
  REQUIRE(places.files->make_directories(places.root / "temp").ok());
  REQUIRE(
      places.files->publish(places.root / "temp", options.cache_dir, "a file", Publish::kFirstWins)
          .ok());
  CHECK(resolve_settings(options, {}, *places.files).status().code == Code::kCacheIo);
}

TEST_CASE("a context says how it compiles") {
  Places places;
  SetupOptions setup;
  setup.device = DeviceKind::kNone;
  setup.settings.cache_dir = places.by_option;
  Json described = make_engine(setup, {}, {}).value()->describe();
  CHECK(described["untrusted"] == Json{{"value", false}, {"weak_sandbox", false}});
  CHECK(described["compile_timeout_ms"] == 60'000);
  setup.untrusted.on = setup.untrusted.weak_sandbox = true;
  setup.compile_timeout = std::chrono::milliseconds(1500);
  described = make_engine(setup, {}, {}).value()->describe();
  CHECK(described["untrusted"] == Json{{"value", true}, {"weak_sandbox", true}});
  CHECK(described["compile_timeout_ms"] == 1500);
}

TEST_CASE("a runtime directory that is relative holds no locks") {
  Places places;
  const Settings settings =
      resolve_settings({}, {{{"XDG_RUNTIME_DIR", "run"}}}, *places.files).value();
  CHECK(settings.lock_dir.value.find("run/") != 0);
}

TEST_CASE("trust_keys names a key file, through links too") {
  Places places;
  CHECK(resolve_settings({}, {}, *places.files)->trusted == nullptr);
  REQUIRE(places.files->make_directories(places.root / "temp").ok());
  const SigningKey key = SigningKey::generate();
  const std::string file = places.root / "keys.pub";
  REQUIRE(places.files->publish(places.root / "temp", file, key.public_pem(), Publish::kFirstWins)
              .ok());
  std::filesystem::create_symlink(file, places.root / "link");
  for (const std::string& name : {file, places.root / "link"}) {
    const auto settings =
        resolve_settings({}, {{{"ATTNLOOM_TRUST_KEYS", name}}}, *places.files).value();
    REQUIRE(settings.trusted);
    CHECK(settings.trusted->key_ids() == std::vector<std::string>{key.key_id()});
    CHECK(settings_to_json(settings)["trust_keys"] ==
          Json{{"path", name}, {"origin", "ATTNLOOM_TRUST_KEYS"}, {"key_ids", {key.key_id()}}});
  }
}

TEST_CASE("a place that somebody named and that cannot be used is an error with its name") {
  Places places;
  REQUIRE(places.files->make_directories(places.root / "temp").ok());
  const std::string file = places.root / "file";
  REQUIRE(places.files->publish(places.root / "temp", file, "not a directory", Publish::kFirstWins)
              .ok());
  SettingOptions options;
  SECTION("cache_dir by option") {
    options.cache_dir = file + "/below";
    const Status status = resolve_settings(options, {}, *places.files).status();
    CHECK(status.code == Code::kCacheIo);
    CHECK(status.path == "option cache_dir");
    CHECK(status.cause.find(file) != std::string::npos);
  }
  SECTION("cache_dir by variable is no reason to fall back to HOME") {
    const Status status =
        resolve_settings({}, {{{"ATTNLOOM_CACHE_DIR", file + "/x"}, {"HOME", places.home}}},
                         *places.files)
            .status();
    CHECK(status.path == "ATTNLOOM_CACHE_DIR");
  }
  SECTION("cache_dir that is a link") {
    REQUIRE(places.files->make_directories(places.root / "real").ok());
    options.cache_dir = places.root / "link";
    std::filesystem::create_directory_symlink(places.root / "real", options.cache_dir);
    CHECK(resolve_settings(options, {}, *places.files).status().cause ==
          options.cache_dir + " cannot be used: it is a symbolic link");
  }
  SECTION("a read-only cache that is not there") {
    options.read_only_caches = places.root.path() + ":" + places.root / "missing";
    const Status status = resolve_settings(options, {}, *places.files).status();
    CHECK(status.path == "option read_only_caches");
    CHECK(status.cause.find("missing cannot be used: it does not exist") != std::string::npos);
  }
  SECTION(
      "a read-only cache may be a file, a bundle, but nothing else, and only a file is pinned") {
    const auto refuse = [&](const std::string& place) {
      const auto settings = resolve_settings({}, {{{"ATTNLOOM_CACHE_RO", place}}}, *places.files);
      CHECK((settings.ok() || settings.status().path == "ATTNLOOM_CACHE_RO"));
      return settings.status().cause;
    };
    const std::string pin = "#sha256=" + std::string(64, '0');
    CHECK(refuse(file).empty());
    CHECK(refuse(file + pin).empty());
    CHECK(refuse(file + "#sha256=0") ==
          file + "#sha256=0 cannot be used: a pinned SHA-256 is 64 lower-case hex digits");
    CHECK(refuse(places.root / "temp" + pin) ==
          places.root / "temp" + pin + " cannot be used: a digest pins a bundle, not a directory");
    CHECK(refuse("/dev/null") ==
          "/dev/null cannot be used: it is neither a directory nor a bundle");
  }
  SECTION("trust_keys: a file that is absent, no key file, or that others can write") {
    Status status =
        resolve_settings({}, {{{"ATTNLOOM_TRUST_KEYS", "/nonexistent"}}}, *places.files).status();
    CHECK(status.code == Code::kCacheIo);
    CHECK(status.path == "ATTNLOOM_TRUST_KEYS");
    options.trust_keys = file;
    status = resolve_settings(options, {}, *places.files).status();
    CHECK(status.code == Code::kArgumentInvalid);
    CHECK(status.path == "option trust_keys");
    CHECK(status.cause == file + " cannot be used: line 1: not understood: not a directory");
    std::filesystem::permissions(file, std::filesystem::perms(0666));
    status = resolve_settings(options, {}, *places.files).status();
    CHECK(status.code == Code::kUntrusted);
    CHECK(status.cause == file + " cannot be used: it can be written by other users");
  }
  SECTION("nvrtc") {
    const Status status =
        resolve_settings({}, {{{"ATTNLOOM_NVRTC", "/nonexistent"}}}, *places.files).status();
    CHECK(status.code == Code::kArgumentInvalid);
    CHECK(status.path == "ATTNLOOM_NVRTC");
  }
  SECTION("lock_dir") {
    options.lock_dir = file;
    CHECK(resolve_settings(options, {}, *places.files).status().path == "option lock_dir");
  }
  SECTION("jit") {
    const Status status = resolve_settings({}, {{{"ATTNLOOM_JIT", "no"}}}, *places.files).status();
    CHECK(status.code == Code::kArgumentInvalid);
    CHECK(status.path == "ATTNLOOM_JIT");
    CHECK(status.cause == "must be allow, warn or never, given no");
  }
}

TEST_CASE("jobs and jit=warn are the option's, else the variable's") {
  Places places;
  const auto resolve = [&](const SettingOptions& options, const std::string& name,
                           const std::string& value) {
    return resolve_settings(options, {{{name, value}}}, *places.files);
  };
  CHECK(resolve({}, "ATTNLOOM_JIT", "warn")->jit_warns);
  CHECK(resolve({}, "ATTNLOOM_JIT", "warn")->jit);
  CHECK_FALSE(resolve({.jit = true}, "ATTNLOOM_JIT", "warn")->jit_warns);
  CHECK(settings_to_json(*resolve({}, "ATTNLOOM_JIT", "warn"))["jit"]["value"] == "warn");
  CHECK(resolve({}, "ATTNLOOM_JOBS", "3")->jobs == 3);
  CHECK(resolve({.jobs = 2}, "ATTNLOOM_JOBS", "3")->jobs == 2);
  CHECK(settings_to_json(*resolve({}, "HOME", "/x"))["jobs"]["value"] == "automatic");
  for (const std::string wrong : {"0", "257", "-1", "two", "2 "}) {
    const Status status = resolve({}, "ATTNLOOM_JOBS", wrong).status();
    CHECK(status.code == Code::kArgumentInvalid);
    CHECK(status.path == "ATTNLOOM_JOBS");
  }
}

TEST_CASE(
    "the cache's size is the option's, else the variable's, else 2 GiB, and never below 64 MiB") {
  Places places;
  const Environment variable = {{{"ATTNLOOM_CACHE_MAX_SIZE", "64M"}}};
  SettingOptions options;
  CHECK(resolve_settings(options, {}, *places.files)->cache_max_bytes == 2147483648u);
  CHECK(resolve_settings(options, {}, *places.files)->cache_max_origin == "default");
  CHECK(resolve_settings(options, variable, *places.files)->cache_max_bytes == 67108864u);
  options.cache_max_size = "3G";
  const Settings settings = resolve_settings(options, variable, *places.files).value();
  CHECK(settings.cache_max_bytes == 3221225472u);
  CHECK(settings_to_json(settings)["cache_max_bytes"] ==
        Json{{"value", 3221225472u}, {"origin", "option cache_max_size"}});
  options.cache_max_size = "67108863";
  const Status small = resolve_settings(options, {}, *places.files).status();
  CHECK(small.code == Code::kArgumentInvalid);
  CHECK(small.path == "option cache_max_size");
  CHECK(small.cause.find("67108863") != std::string::npos);
  const Environment wrong = {{{"ATTNLOOM_CACHE_MAX_SIZE", "plenty"}}};
  CHECK(resolve_settings({}, wrong, *places.files).status().path == "ATTNLOOM_CACHE_MAX_SIZE");
}

TEST_CASE("jit is the option's, else the variable's, else allowed") {
  Places places;
  const Environment never = {{{"ATTNLOOM_JIT", "never"}}};
  SettingOptions options;
  CHECK(resolve_settings(options, {}, *places.files)->jit);
  CHECK_FALSE(resolve_settings(options, never, *places.files)->jit);
  options.jit = true;
  CHECK(resolve_settings(options, never, *places.files)->jit);
}

TEST_CASE(
    "the compiler is looked for in named folders, PYTHONPATH and the virtual environment, in this "
    "order") {
  Places places;
  REQUIRE(places.files->make_directories(places.root / "venv/lib/python3.11/site-packages").ok());
  SettingOptions options;
  options.python_paths = "/a:/b";
  const Environment environment = {
      {{"PYTHONPATH", "/c::/d"}, {"VIRTUAL_ENV", places.root / "venv"}, {"CUDA_HOME", "/cuda"}}};
  const Settings settings = resolve_settings(options, environment, *places.files).value();
  CHECK(settings.search.python_paths ==
        std::vector<std::string>{"/a", "/b", "/c", "/d",
                                 places.root / "venv/lib/python3.11/site-packages"});
  CHECK(settings.search.cuda_home == "/cuda");
  CHECK(settings.search.path.empty());
  CHECK(settings.search.beside == own_folder());
}

TEST_CASE("the access log is the option's, else the variable's, else none") {
  const Places places;
  SettingOptions options;
  CHECK(resolve_settings(options, {}, *places.files)->access_log.value.empty());
  const Environment environment{{{"ATTNLOOM_ACCESS_LOG", "/a/log"}}};
  CHECK(resolve_settings(options, environment, *places.files)->access_log.value == "/a/log");
  options.access_log = "/other";
  const Settings settings = resolve_settings(options, environment, *places.files).value();
  CHECK(settings_to_json(settings)["access_log"] ==
        Json({{"path", "/other"}, {"origin", "option access_log"}}));
}

TEST_CASE("locks never lie in the cache") {
  Places places;
  CHECK(
      resolve_settings({}, {{{"XDG_RUNTIME_DIR", "/run/user/1"}}}, *places.files)->lock_dir.value ==
      "/run/user/1/attnloom");
  const Settings settings = resolve_settings({}, places.environment(), *places.files).value();
  CHECK(settings.lock_dir.value.find(settings.cache_root.value) == std::string::npos);
}

TEST_CASE("read_environment takes exactly the variables of the table") {
  REQUIRE(setenv("ATTNLOOM_CACHE_DIR", "/from/test", 1) == 0);
  REQUIRE(setenv("ATTNLOOM_JIT", "", 1) == 0);
  REQUIRE(setenv("ATTNLOOM_UNKNOWN", "x", 1) == 0);
  const Environment environment = read_environment();
  CHECK(environment.get("ATTNLOOM_CACHE_DIR") == "/from/test");
  CHECK(environment.values.count("ATTNLOOM_JIT") == 0);  // empty counts as not set
  CHECK(environment.values.count("ATTNLOOM_UNKNOWN") == 0);
  unsetenv("ATTNLOOM_CACHE_DIR");
  unsetenv("ATTNLOOM_JIT");
  unsetenv("ATTNLOOM_UNKNOWN");
}

TEST_CASE("make_engine touches no device and says where everything is") {
  Places places;
  SetupOptions options;
  options.device = DeviceKind::kCuda;
  options.driver_library = "/nonexistent/libcuda.so.1";
  options.settings.cache_dir = places.by_option;
  const auto engine = make_engine(options, places.environment(), Log());
  REQUIRE(engine.ok());
  const Json described = (*engine)->describe();
  CHECK(described["cache"]["path"] == places.by_option);
  CHECK(described["cache"]["origin"] == "option cache_dir");
  CHECK(described["device"] == "not used yet");
  CHECK((*engine)->backend().status().code == Code::kNoDriver);
}

TEST_CASE("auto is the simulator where there is no driver") {
  Places places;
  SetupOptions options;
  options.driver_library = "/nonexistent/libcuda.so.1";
  options.simulator_profile = "a100";
  const auto engine = make_engine(options, places.environment(), Log()).value();
  REQUIRE(engine->backend().ok());
  CHECK(engine->backend().value()->device().simulated);
  CHECK(engine->backend().value()->device().target.name() == "sm_80");
  options.simulator_profile = "b200";
  CHECK(make_engine(options, places.environment(), Log()).status().path == "simulator_profile");
}

}  // namespace
}  // namespace attnloom
