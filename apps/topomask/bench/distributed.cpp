// `topomask bench distributed`: attention over ranks, and what they send against what must be sent.
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/machine.h"
#include "bench/timing.h"
#include "commands/commands.h"
#include "core/check.h"
#include "core/parallel.h"
#include "options/attention_options.h"
#include "table.h"
#include "topomask/device.h"
#include "topomask/rank_plan.h"

namespace topomask::cli {
namespace {

struct BenchDistributedCommand : AttentionFlags {
  std::int64_t heads = 4, channels = 32;
  int repeats = 5;
};

struct RankTiming {
  Timing wall;
  double cpu = 0;  // of all ranks and threads together: what counts where cores are shared with others
};

double process_cpu_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Of one rank, in the order of the columns below.
enum Column { kNodes, kInterior, kHalo, kEntries, kSent, kFloor, kMemory, kColumns };

// Bytes that this rank must send in a forward pass.
std::int64_t fewest_bytes(const DistributedGrfMask& mask, Engine engine, std::int64_t heads,
                          std::int64_t features, std::int64_t channels) {
  double bytes = 0;
  for (std::int64_t set = 0; set < mask.num_sets(); ++set) {
    const DistributedGrfMask::Counts counted = mask.counts(engine, set);
    RankCounts counts;
    counts.mask_sends = static_cast<double>(counted.sends);
    counts.key_columns = static_cast<double>(counted.key_columns);
    counts.query_sends = static_cast<double>(counted.query_sends);
    bytes += forward_bytes(counts, engine, heads / mask.num_sets(), features, channels);
  }
  return static_cast<std::int64_t>(bytes);
}

void run_bench_distributed(const BenchDistributedCommand& command, const RanksPtr& ranks) {
  check(command.heads >= 1 && command.channels >= 1 && command.repeats >= 1,
        "bench distributed: expected --heads, --channels and --repeats of at least 1");
  const c10::Device device = ranks->compute_on(command.device);
  const Clock::time_point start = Clock::now();
  const DistributedGraph graph = command.ranks.load(command.mask.graph, ranks);
  const double seconds_graph = seconds_since(start);
  const Clock::time_point walking = Clock::now();
  const auto mask = command.mask.make(command.run.seed, graph, command.ranks.route, device);
  const Engine engine = choose_engine(*mask, command.attention, command.channels, command.channels);
  AttentionOptions options = command.attention;
  options.engine = engine;
  const auto draw = [&] { return at::randn({1, command.heads, graph.num_own(), command.channels}, device); };
  const at::Tensor q = draw(), k = draw(), v = draw();
  attention(q, k, v, *mask, options);  // makes what is made once
  synchronise(device);
  const double seconds_mask = seconds_since(walking);

  const auto in_step = [&] { ranks->largest(at::tensor({0}, at::kLong), "the time"); };
  const auto timed = [&](const std::function<void()>& call) {
    std::vector<double> seconds, cpu_seconds;
    for (int i = 0; i < command.repeats; ++i) {
      in_step();
      const Clock::time_point begin = Clock::now();
      const double cpu_before = process_cpu_seconds();
      call();
      synchronise(device);
      const double cpu = process_cpu_seconds() - cpu_before;
      in_step();
      seconds.push_back(seconds_since(begin));
      cpu_seconds.push_back(ranks->sum(at::tensor({cpu}, at::kDouble), "the time").item<double>());
    }
    return RankTiming{summarise_times(seconds), summarise_times(cpu_seconds).median};
  };
  ranks->reset_bytes_sent();
  attention(q, k, v, *mask, options);
  const std::int64_t sent = ranks->bytes_sent();
  const RankTiming forward = timed([&] { attention(q, k, v, *mask, options); });
  const at::Tensor f = mask->f().to(at::kFloat).detach().clone().requires_grad_();
  const auto learning = mask->with_f(f);
  const RankTiming both = timed([&] {
    const at::Tensor ql = q.detach().requires_grad_(), kl = k.detach().requires_grad_(),
                     vl = v.detach().requires_grad_();
    attention(ql, kl, vl, *learning, options).sum().backward();
  });

  const DistributedGrfMask::Counts counts = mask->counts(Engine::mask);
  std::vector<std::int64_t> own(kColumns);
  own[kNodes] = graph.num_own();
  own[kInterior] = counts.interior_rows;
  own[kHalo] = counts.halo;
  own[kEntries] = counts.entries;
  own[kSent] = sent;
  own[kFloor] = fewest_bytes(*mask, engine, command.heads,
                             options.feature_map.output_features(command.channels), command.channels);
  own[kMemory] = device.is_cuda() ? peak_memory(device) : peak_memory_bytes();
  const at::Tensor all = ranks->all_gather(at::tensor(own, at::kLong), "the figures");
  if (ranks->rank() != 0) return;
  const at::Tensor totals = all.sum(0);
  const auto total = [&](Column column) { return totals[column].item<std::int64_t>(); };
  const double ratio =
      total(kFloor) == 0 ? 1 : static_cast<double>(total(kSent)) / static_cast<double>(total(kFloor));
  constexpr const char* kNames[] = {"nodes",      "interior",    "halo",       "entries",
                                    "bytes_sent", "bytes_floor", "peak_memory"};
  if (command.run.json) {
    nlohmann::ordered_json json = {{"ranks", ranks->size()},
                                   {"threads", num_threads()},
                                   {"device", command.device},
                                   {"carrier", ranks->carrier(device)},
                                   {"engine", word_of(engine)},
                                   {"route", word_of(mask->features().query.route)},
                                   {"bytes_sent", total(kSent)},
                                   {"bytes_floor", total(kFloor)},
                                   {"ratio", ratio},
                                   {"seconds_graph", seconds_graph},
                                   {"seconds_mask", seconds_mask},
                                   {"seconds_forward", forward.wall.median},
                                   {"seconds_forward_spread", forward.wall.spread},
                                   {"seconds_forward_cpu", forward.cpu},
                                   {"seconds_forward_backward", both.wall.median},
                                   {"seconds_forward_backward_cpu", both.cpu},
                                   {"parts", nlohmann::ordered_json::array()}};
    for (int r = 0; r < ranks->size(); ++r) {
      nlohmann::ordered_json part;
      for (int c = 0; c < kColumns; ++c) part[kNames[c]] = all[r][c].item<std::int64_t>();
      json["parts"].push_back(part);
    }
    fmt::print("{}\n", json.dump());
    return;
  }
  if (command.run.quiet) return;
  Listing listing;
  listing.add("ranks", fmt::format("{}, each with {} threads", ranks->size(), num_threads()));
  listing.add("device", fmt::format("{}, sent by {}", command.device, ranks->carrier(device)));
  listing.add("engine", std::string(word_of(engine)));
  listing.add("walks by", std::string(word_of(mask->features().query.route)));
  listing.add("graph and parts", format_seconds(seconds_graph));
  listing.add("walks and mask", format_seconds(seconds_mask));
  listing.add("forward",
              fmt::format("{} (spread {}), {} of all cores together", format_seconds(forward.wall.median),
                          format_seconds(forward.wall.spread), format_seconds(forward.cpu)));
  listing.add("forward and backward",
              fmt::format("{}, f learning, {} of all cores together", format_seconds(both.wall.median),
                          format_seconds(both.cpu)));
  listing.add("sent per forward", fmt::format("{}, {:.3f} x the least possible {}",
                                              format_bytes(static_cast<double>(total(kSent))), ratio,
                                              format_bytes(static_cast<double>(total(kFloor)))));
  listing.print();
  fmt::print("\n");
  Table table({"rank", "nodes", "interior", "halo", "entries", "sent", "peak memory"});
  for (int r = 0; r < ranks->size(); ++r) {
    const auto cell = [&](Column column) { return static_cast<double>(all[r][column].item<std::int64_t>()); };
    table.add_row({std::to_string(r), format_count(cell(kNodes)), format_count(cell(kInterior)),
                   format_count(cell(kHalo)), format_count(cell(kEntries)), format_bytes(cell(kSent)),
                   format_bytes(cell(kMemory))});
  }
  table.print();
}

}  // namespace

void add_bench_distributed_command(CLI::App& bench) {
  CLI::App* sub = bench.add_subcommand("distributed", "Attention over ranks: time, memory and bytes sent");
  const auto command = std::make_shared<BenchDistributedCommand>();
  sub->add_option("--heads", command->heads, "Attention heads")->capture_default_str();
  sub->add_option("--channels", command->channels, "Channels of q, k and v per head")->capture_default_str();
  sub->add_option("--repeats", command->repeats, "Number of measurements; the median is printed")
      ->capture_default_str();
  add_attention_options(*sub, *command);
  sub->footer(
      "Examples:\n"
      "  topomask bench distributed --graph grid:300x300 --ranks 2\n"
      "  torchrun --no-python --nproc-per-node 2 -- topomask bench distributed --graph shards:parts");
  sub->callback([command, sub] {
    check_feature_options(*sub, command->attention);
    command->ranks.run(command->run, [&](const RanksPtr& ranks) { run_bench_distributed(*command, ranks); });
  });
}

}  // namespace topomask::cli
