// SPDX-License-Identifier: Apache-2.0
// An HTTP server that a client cannot hold. httplib limits the wait for each read only, and no
// body that comes in chunks; so here the waits of a connection add up, in either direction, and
// so do the bytes it sends. One request a connection. Threading: as httplib::Server.
#pragma once

#include <httplib.h>

#include <atomic>

namespace attnloom::cli {

class BoundedServer : public httplib::Server {
 public:
  BoundedServer();
  // After bind: httplib's queue of five is full when a few more clients than that come at once, and
  // the kernel then resets some of them.
  bool lengthen_queue();
  // From now on clients are hardly waited for: what is slow must not hold the end up.
  void hurry() { hurried_ = true; }

 private:
  bool process_and_close_socket(socket_t socket) override;

  std::atomic<bool> hurried_{false};
};

}  // namespace attnloom::cli
