// See context.h.
#pragma once
