// The files of apps/topomask/report/assets, as they were when the program was built.
#pragma once

#include <string_view>

namespace topomask::cli::assets {

extern const std::string_view kPage, kScript;                  // of an image experiment
extern const std::string_view kParticlePage, kParticleScript;  // of a particle experiment
extern const std::string_view kStyle;
extern const std::string_view kChartLibrary;  // empty where Chart.js was not found

}  // namespace topomask::cli::assets
