// result.json of a run of particles.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace topomask {

// `path` is named where the text cannot be understood.
nlohmann::ordered_json parse_particle_result(const std::string& text, const std::string& path);

}  // namespace topomask
