// SPDX-License-Identifier: Apache-2.0
// A server on loopback that answers with exactly the bytes a test wants, however wrong, and
// remembers what it was asked; and one that keeps blobs as a Bazel HTTP cache does.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace attnloom {

struct Asked {
  std::string method;
  std::string target;
  std::string head;  // everything before the body
  std::string body;
  bool has(const std::string& text) const { return head.find(text) != std::string::npos; }
};

inline std::string answer(int status, const std::string& body, const std::string& headers = "") {
  return "HTTP/1.1 " + std::to_string(status) +
         " X\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n" +
         headers + "\r\n" + body;
}

inline std::string redirect(const std::string& to, int status = 302) {
  return answer(status, "", "Location: " + to + "\r\n");
}

class RawServer {
 public:
  // `reply` gives the raw bytes of an answer; called from several threads.
  using Reply = std::function<std::string(const Asked&)>;

  explicit RawServer(Reply reply) : reply_(std::move(reply)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_, 64) == 0);
    socklen_t length = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { accept_all(); });
  }
  ~RawServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    for (std::thread& one : connections_) one.join();
    ::close(listener_);
  }
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;

  std::string url(const std::string& host = "127.0.0.1") const {
    return "http://" + host + ":" + std::to_string(port_);
  }
  std::vector<Asked> asked() const {
    const std::scoped_lock lock(mutex_);
    return asked_;
  }
  int count(const std::string& method, const std::string& prefix = "/") const {
    int found = 0;
    for (const Asked& one : asked())
      found += one.method == method && one.target.rfind(prefix, 0) == 0;
    return found;
  }

 private:
  void accept_all() {
    for (;;) {
      const int peer = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0) return;
      connections_.emplace_back([this, peer] { serve(peer); });
    }
  }
  void serve(int peer) {
    const Asked one = read_request(peer);
    if (!one.method.empty()) {
      {
        const std::scoped_lock lock(mutex_);
        asked_.push_back(one);
      }
      const std::string bytes = reply_(one);
      for (std::size_t sent = 0; sent < bytes.size();) {
        const ssize_t now = ::send(peer, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (now <= 0) break;
        sent += static_cast<std::size_t>(now);
      }
    }
    ::close(peer);
  }
  static Asked read_request(int peer) {
    std::string text;
    char buffer[4096];
    std::size_t end = std::string::npos;
    std::size_t wanted = 0;
    while (end == std::string::npos || text.size() < end + 4 + wanted) {
      const ssize_t got = ::recv(peer, buffer, sizeof buffer, 0);
      if (got <= 0) return {};
      text.append(buffer, static_cast<std::size_t>(got));
      if (end == std::string::npos && (end = text.find("\r\n\r\n")) != std::string::npos) {
        const std::size_t length = text.find("Content-Length: ");
        if (length < end) wanted = std::stoul(text.substr(length + 16));
      }
    }
    Asked one;
    one.head = text.substr(0, end + 2);
    one.body = text.substr(end + 4);
    one.method = one.head.substr(0, one.head.find(' '));
    const std::size_t begin = one.method.size() + 1;
    one.target = one.head.substr(begin, one.head.find(' ', begin) - begin);
    return one;
  }

  const Reply reply_;
  int listener_ = -1;
  int port_ = 0;
  std::thread thread_;
  std::vector<std::thread> connections_;  // touched by the accepting thread until it is joined
  mutable std::mutex mutex_;
  std::vector<Asked> asked_;
};

// What lies on a server, by path; shared with the test, which may spoil it.
class BlobFiles {
 public:
  std::string reply(const Asked& asked) {
    const std::scoped_lock lock(mutex_);
    if (asked.method == "PUT") {
      files_[asked.target] = asked.body;
      return answer(201, "");
    }
    const auto found = files_.find(asked.target);
    if (found == files_.end()) return answer(404, "none");
    const std::string whole = answer(200, found->second);
    return asked.method == "HEAD" ? whole.substr(0, whole.size() - found->second.size()) : whole;
  }
  std::map<std::string, std::string> all() const {
    const std::scoped_lock lock(mutex_);
    return files_;
  }
  void set(const std::string& path, const std::string& bytes) {
    const std::scoped_lock lock(mutex_);
    files_[path] = bytes;
  }
  void remove(const std::string& path) {
    const std::scoped_lock lock(mutex_);
    files_.erase(path);
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> files_;
};

}  // namespace attnloom
