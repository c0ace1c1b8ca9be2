// How ranks find each other, and what they say when they do not.
#pragma once

#include <c10/util/Logging.h>

#include <chrono>
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "topomask/distributed.h"

namespace topomask {

std::chrono::milliseconds limit_of(const RankOptions& options);
std::string limit_text(std::chrono::milliseconds limit);
// The value of a variable, or null where it is not set or empty.
const char* environment(const char* name);

// The first line of a message, without the place in torch's sources that it begins with.
std::string first_line(const std::exception& error);

// Torch also logs what it throws, with a stack trace. Our one-line message is enough.
class QuietTorch {
#ifndef C10_USE_GLOG
 public:
  QuietTorch() : level_(FLAGS_caffe2_log_level) {
    FLAGS_caffe2_log_level = 3;
  }  // fatal errors alone
  ~QuietTorch() {
    FLAGS_caffe2_log_level = level_;
  }
  QuietTorch(const QuietTorch&) = delete;
  QuietTorch& operator=(const QuietTorch&) = delete;

 private:
  int level_;
#endif
};

// A rank that has ended has closed its sockets. Gloo and the server of the TCP store write to them without
// MSG_NOSIGNAL, and the signal would end this process without a word; ignored, the write fails and becomes
// our sentence. A handler of the caller's own stays.
void ignore_closed_sockets();

// Each rank announces itself and the number of ranks. Throws if one is missing, appears twice or has another
// number.
void meet(c10d::Store& store, int rank, int size, std::chrono::milliseconds limit);

}  // namespace topomask
