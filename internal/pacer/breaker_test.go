package pacer

const millisecond = int64(1000) // of local time
