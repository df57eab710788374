// SPDX-License-Identifier: Apache-2.0
#include "compile/worker_messages.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace attnloom {
namespace {

constexpr std::size_t kMostTextBytes = 4096;  // of an error's cause

class Writer {
 public:
  Writer& number(std::uint64_t value) {
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));  // both ends are on one machine
    out_.append(bytes, sizeof(bytes));
    return *this;
  }
  Writer& text(std::string_view value) {
    number(value.size());
    out_.append(value);
    return *this;
  }
  Writer& texts(const std::vector<std::string>& values) {
    number(values.size());
    for (const std::string& value : values) text(value);
    return *this;
  }
  Writer& error(const Status& status) {
    return number(static_cast<std::uint64_t>(status.code))
        .text(status.path)
        .text(status.cause)
        .text(status.remedy);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// After the first read past the end everything reads as nothing, and whole() is false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    const std::string_view bytes = take(sizeof(value));
    if (!failed_) std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  std::string text() { return std::string(take(number())); }
  std::vector<std::string> texts() {
    std::vector<std::string> values;
    // Each takes bytes of its own, so a count that lies ends with them.
    for (std::uint64_t left = number(); left > 0 && !failed_; --left) values.push_back(text());
    return values;
  }
  bool whole() const { return !failed_ && left_.empty(); }
  bool failed() const { return failed_; }

 private:
  std::string_view take(std::uint64_t count) {
    failed_ = failed_ || count > left_.size();
    if (failed_) return {};
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }

  std::string_view left_;
  bool failed_ = false;
};

Status not_a_message(const char* what) {
  return make_error(Code::kInternal, "",
                    std::string("the compile worker's ") + what + " cannot be read",
                    "install attnloom and attnloom-cc of one build");
}

// It ends in logs and terminals, and the sender may have been taken over.
std::string harmless(std::string text) {
  text.resize(std::min(text.size(), kMostTextBytes));
  std::replace_if(
      text.begin(), text.end(),
      [](char letter) { return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f; }, ' ');
  return text;
}

// kOk where no error follows.
Status read_error(Reader& reader, const char* what) {
  const std::uint64_t code = reader.number();
  if (code == static_cast<std::uint64_t>(Code::kOk) && !reader.failed()) return ok_status();
  Status status;
  status.code = static_cast<Code>(code);
  status.path = harmless(reader.text());
  status.cause = harmless(reader.text());
  status.remedy = harmless(reader.text());
  const bool known = code <= static_cast<std::uint64_t>(Code::kArgumentInvalid);
  return reader.whole() && known ? status : not_a_message(what);
}

}  // namespace

std::string frame(std::string_view payload) {
  return Writer().text(payload).take();
}

std::uint64_t frame_length(std::string_view head) {
  return Reader(head).number();
}

std::optional<std::string_view> take_frame(std::string_view& bytes) {
  if (bytes.size() < kFrameHeadBytes) return std::nullopt;
  const std::uint64_t length = frame_length(bytes);
  if (length > bytes.size() - kFrameHeadBytes) return std::nullopt;
  const std::string_view payload = bytes.substr(kFrameHeadBytes, length);
  bytes.remove_prefix(kFrameHeadBytes + length);
  return payload;
}

std::string encode(const WorkerOrder& order) {
  return Writer()
      .text(order.search.path)
      .text(order.search.cuda_home)
      .texts(order.search.python_paths)
      .text(order.search.beside)
      .number(order.address_space_bytes)
      .number(order.cpu_seconds)
      .number(order.weak_sandbox ? 1 : 0)
      .take();
}

Result<WorkerOrder> decode_order(std::string_view bytes) {
  Reader reader(bytes);
  WorkerOrder order;
  order.search.path = reader.text();
  order.search.cuda_home = reader.text();
  order.search.python_paths = reader.texts();
  order.search.beside = reader.text();
  order.address_space_bytes = reader.number();
  order.cpu_seconds = reader.number();
  order.weak_sandbox = reader.number() == 1;
  if (!reader.whole()) return not_a_message("order");
  return order;
}

std::string encode(const Source& source) {
  Writer writer;
  writer.text(source.text).number(source.headers.size());
  for (const Header& header : source.headers) writer.text(header.name).text(header.text);
  return writer.texts(source.options).text(source.target).texts(source.entries).take();
}

Result<Source> decode_source(std::string_view bytes) {
  Reader reader(bytes);
  Source source;
  source.text = reader.text();
  for (std::uint64_t left = reader.number(); left > 0 && !reader.failed(); --left) {
    std::string name = reader.text();
    source.headers.push_back({std::move(name), reader.text()});
  }
  source.options = reader.texts();
  source.target = reader.text();
  source.entries = reader.texts();
  if (!reader.whole()) return not_a_message("source");
  return source;
}

std::string encode(const Result<Fingerprint>& greeting) {
  Writer writer;
  if (!greeting.ok()) return writer.error(greeting.status()).take();
  return writer.number(static_cast<std::uint64_t>(Code::kOk))
      .text(greeting->hex)
      .number(static_cast<std::uint64_t>(greeting->cuda_major))
      .number(static_cast<std::uint64_t>(greeting->cuda_minor))
      .number(static_cast<std::uint64_t>(greeting->least_driver))
      .take();
}

Result<Fingerprint> decode_greeting(std::string_view bytes) {
  Reader reader(bytes);
  ATTNLOOM_CHECK(read_error(reader, "greeting"));
  Fingerprint fingerprint;
  fingerprint.hex = reader.text();
  fingerprint.cuda_major = static_cast<int>(reader.number());
  fingerprint.cuda_minor = static_cast<int>(reader.number());
  fingerprint.least_driver = static_cast<int>(reader.number());
  if (!reader.whole()) return not_a_message("greeting");
  return fingerprint;
}

std::string encode(const Result<CompiledText>& answer) {
  Writer writer;
  if (!answer.ok()) return writer.error(answer.status()).take();
  return writer.number(static_cast<std::uint64_t>(Code::kOk))
      .text(answer->cubin)
      .text(answer->ptx)
      .text(answer->log)
      .take();
}

Result<CompiledText> decode_answer(std::string_view bytes) {
  Reader reader(bytes);
  ATTNLOOM_CHECK(read_error(reader, "answer"));
  CompiledText text;
  text.cubin = reader.text();
  text.ptx = reader.text();
  text.log = reader.text();
  if (!reader.whole()) return not_a_message("answer");
  return text;
}

}  // namespace attnloom
