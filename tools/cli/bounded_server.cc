// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/bounded_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

namespace attnloom::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kMostWait{10'000};  // for all of a request, and for all of an answer
constexpr milliseconds kHurriedWait{500};
constexpr milliseconds kLastWait{1'000};  // for the client to take the answer
constexpr milliseconds kSlice{100};       // of a wait, so that hurry() is seen
// A body that is too long is read up to here, so that its sender hears 413 and no reset.
constexpr std::size_t kMostBytes = 1 << 20;

constexpr int kQueued = 512;  // connections that wait for a thread; the kernel may allow fewer

class BoundedStream final : public httplib::Stream {
 public:
  BoundedStream(socket_t socket, const std::atomic<bool>& hurried)
      : socket_(socket), hurried_(hurried) {}

  // httplib asks before a request and before an answer; the waiting is done in read and write.
  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  // Of no use behind a proxy, and nothing here looks at them.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

  ssize_t read(char* to, std::size_t size) override {
    if (next_ == end_ && !fill()) return failed_ ? -1 : 0;
    const std::size_t count = std::min(size, end_ - next_);
    std::copy_n(buffer_.data() + next_, count, to);
    next_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* from, std::size_t size) override {
    while (true) {
      const ssize_t sent = ::send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0 || !try_again()) return sent;
      if (!wait(POLLOUT, write_waited_)) return -1;
    }
  }

  // To close a socket with bytes unread resets it, and the client may lose an answer that was
  // given before all of its request was read (401, 413).
  void finish() {
    ::shutdown(socket_, SHUT_WR);
    read_waited_ = std::max(read_waited_, kMostWait - kLastWait);
    while (fill()) {
    }
    ::close(socket_);
  }

 private:
  static bool try_again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

  // httplib reads the head byte by byte.
  bool fill() {
    while (!failed_) {
      const ssize_t got = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
      if (got == 0) return false;
      if (got > 0) {
        received_ += static_cast<std::size_t>(got);
        failed_ = received_ > kMostBytes;
        next_ = 0;
        end_ = static_cast<std::size_t>(got);
        return !failed_;
      }
      failed_ = !try_again() || !wait(POLLIN, read_waited_);
    }
    return false;
  }

  bool wait(short event, milliseconds& waited) {
    while (waited < (hurried_ ? kHurriedWait : kMostWait)) {
      pollfd poll = {socket_, event, 0};
      const Clock::time_point begin = Clock::now();
      const int ready = ::poll(&poll, 1, static_cast<int>(kSlice.count()));
      // Rounded up, so that a client that sends a byte at a time pays for each of them.
      waited += std::chrono::ceil<milliseconds>(Clock::now() - begin);
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return false;
    }
    return false;
  }

  const socket_t socket_;
  const std::atomic<bool>& hurried_;
  std::array<char, 4096> buffer_;
  std::size_t next_ = 0, end_ = 0, received_ = 0;
  bool failed_ = false;
  milliseconds read_waited_{0}, write_waited_{0};
};

}  // namespace

BoundedServer::BoundedServer() {
  // httplib's own SO_REUSEPORT would let a second service share the port without a word, and
  // requests reach one of the two by chance.
  set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
}

bool BoundedServer::lengthen_queue() {
  return ::listen(svr_sock_, kQueued) == 0;
}

bool BoundedServer::process_and_close_socket(socket_t socket) {
  BoundedStream stream(socket, hurried_);
  bool closed = false;
  const bool done = process_request(stream, true, closed, nullptr);
  stream.finish();
  return done;
}

}  // namespace attnloom::cli
