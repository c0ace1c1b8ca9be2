// The files of apps/topomask/report/assets, as they were when the program was built.
#pragma once

#include <string_view>

namespace topomask::cli::assets {

extern const std::string_view kPage, kStyle;                      // of all experiments
extern const std::string_view kImageContent, kImageScript;        // of images
extern const std::string_view kParticleContent, kParticleScript;  // of particles
extern const std::string_view kChartLibrary;                      // empty where Chart.js was not found

}  // namespace topomask::cli::assets
