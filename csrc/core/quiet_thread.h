// A thread of ours in a process whose signals are the program's.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace ftax {

// It takes no signal but those of its faults: blocked, these would end the process unheard.
template <typename Body>
[[nodiscard]] std::thread start_quiet_thread(Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // a thread inherits it
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace ftax
