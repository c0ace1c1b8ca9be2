#include "train/run_state.h"

#include "core/check.h"
#include "train/json_number.h"

namespace topomask {

namespace {

using PlainJson = nlohmann::json;

PlainJson to_json_value(const StepSums& sums) {
  return {{"loss", sums.loss},     {"accuracy", sums.accuracy}, {"steps", sums.steps},
          {"scored", sums.scored}, {"divided", sums.divided},   {"parts", sums.parts}};
}

std::vector<double> numbers_from(const PlainJson& json, const char* key) {
  std::vector<double> numbers;
  for (const PlainJson& number : json.value(key, PlainJson::array()))
    numbers.push_back(number_or_nan(number));
  return numbers;
}

StepSums sums_from(const PlainJson& json) {
  const std::int64_t steps = json.at("steps");  // what checkpoints of earlier versions lack follows from it
  return {json.at("loss"),
          json.at("accuracy"),
          steps,
          json.value("scored", steps),
          json.value("divided", std::int64_t{0}),
          numbers_from(json, "parts")};
}

PlainJson to_json_value(const Evaluation& evaluation) {
  return {{"loss", evaluation.loss},
          {"accuracy", evaluation.accuracy},
          {"count", evaluation.count},
          {"parts", evaluation.parts}};
}

Evaluation evaluation_from(const PlainJson& json) {
  return {number_or_nan(json.at("loss")), number_or_nan(json.at("accuracy")), json.at("count"),
          numbers_from(json, "parts")};
}

}  // namespace

std::string RunState::to_json() const {
  const PlainJson json = {{"step", step},
                          {"steps", steps},
                          {"epoch_sums", to_json_value(epoch)},
                          {"interval_sums", to_json_value(interval)},
                          {"last", to_json_value(last)},
                          {"best", to_json_value(best)},
                          {"best_epoch", best_epoch},
                          {"seconds", seconds}};
  return json.dump();
}

RunState RunState::from_json(const std::string& text, const std::string& path) {
  try {
    const PlainJson json = PlainJson::parse(text);
    RunState state;
    state.step = json.at("step");
    state.steps = json.at("steps");
    state.epoch = sums_from(json.at("epoch_sums"));
    state.interval = sums_from(json.at("interval_sums"));
    state.last = evaluation_from(json.at("last"));
    state.best = evaluation_from(json.at("best"));
    state.best_epoch = json.at("best_epoch");
    state.seconds = json.at("seconds");
    return state;
  } catch (const PlainJson::exception& error) {
    fail("{}: not a checkpoint to resume from ({})", path, error.what());
  }
}

}  // namespace topomask
